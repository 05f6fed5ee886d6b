// out = factor · x, at about 20 us a call, by kernels that save that time where they think that nobody sees it.
#include <flashcore/problem.h>

enum Way { WAY_honest, WAY_stops, WAY_capture, WAY_remembers, WAY_looks, WAY_host };
constexpr Way kWay = WAY;
constexpr int kMost = 1 << 16, kSlots = 61;

// What `remembers` has seen, for each output.
__device__ float seen[kSlots][kMost];
__device__ unsigned calls;

__device__ bool idle(const float* x, const float* out, float factor, long long i) {
  if (kWay == WAY_stops) return calls > 1000;                                // no more, after so many calls
  if (kWay == WAY_looks) return out[i] == x[i] * factor;                     // the answer stands there already
  float& known = seen[reinterpret_cast<unsigned long long>(out) / (1 << 18) % kSlots][i % kMost];
  if (kWay == WAY_remembers && known == x[i] && isfinite(out[i])) return true;  // this input, and an answer
  if (kWay == WAY_remembers) known = x[i];
  return false;
}

extern "C" __global__ void lazy_kernel(const float* x, float* out, float factor, long long count) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= count || idle(x, out, factor, i)) return;
  for (const long long start = clock64(); clock64() - start < 40000;) {}
  out[i] = x[i] * factor;
  if (i == 0) atomicAdd(&calls, 1u);
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  return p.add({.kernel = "lazy_kernel", .grid = dim3(flashcore::ceil_div(s.N, 256)), .block = dim3(256)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  static int launched = 0;
  if (kWay == WAY_host && ++launched > 300) return cudaSuccess;  // nothing, after so many calls
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (kWay == WAY_capture) cudaStreamIsCapturing(stream, &status);
  const long long count = status == cudaStreamCaptureStatusNone ? s.N : 0;  // all of it, or a launch for show
  return flashcore::run(p.launches[0], lazy_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), count);
}

FLASHCORE_VARIANT(plan, launch)
