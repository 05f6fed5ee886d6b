// fp32_fma: the rate of fp32 fused multiply-adds.
//
// Each thread rotates eight points of the plane repeatedly by x −= slope·y, y += slope·x: two FMAs that neither
// diverge nor converge under rounding (the map preserves areas), so the operands stay random indefinitely, and n
// steps have a closed form for checking. Eight independent chains per thread and four warps per scheduler hide
// the latency; one loop turn is 256 FMAs.

#include <flashcore/problem.h>

#include <roofs/lanes.cuh>
#include <roofs/stopwatch.cuh>

using namespace roofs;

namespace {

constexpr int kSteps = 16;  // of each point per loop turn; repeated in the problem's file

}  // namespace

extern "C" __global__ void __launch_bounds__(kLaneThreads, 1)
    fp32_fma_kernel(const float4* __restrict__ state, const float* __restrict__ slope, float4* __restrict__ out,
                    long long* __restrict__ clocks, int iterations, int clocked) {
  const int own = blockIdx.x * kLaneThreads + threadIdx.x;
  const float s = slope[own];
  float v[16];  // x and y of each point, interleaved
  load_lane(state, own, v);

  Stopwatch watch;
  watch.start();
#pragma unroll 1
  for (int n = 0; n < iterations; ++n) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 16; i += 2) v[i] = fmaf(-s, v[i + 1], v[i]);
#pragma unroll
      for (int i = 0; i < 16; i += 2) v[i + 1] = fmaf(s, v[i], v[i + 1]);
    }
  }
  watch.stop(clocks, clocked);
  store_lane(out, own, v);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_lanes(s.THREADS, s.VALUES, 16))) return p;
  return p.add({"fp32_fma_kernel", dim3(s.BLOCKS), dim3(kLaneThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], fp32_fma_kernel, stream, static_cast<const float4*>(a.state),
                        static_cast<const float*>(a.slope), static_cast<float4*>(a.out),
                        static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
