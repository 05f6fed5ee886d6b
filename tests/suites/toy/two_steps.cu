// out = factor · x by two kernels: copy to the workspace, then scale.
#include <flashcore/problem.h>

extern "C" __global__ void copy_kernel(const float* x, float* copy, long long count) {
  __shared__ float tile[256];
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  tile[threadIdx.x] = i < count ? x[i] : 0.0f;
  __syncthreads();
  if (i < count) copy[i] = tile[threadIdx.x];
}

extern "C" __global__ void multiply_kernel(const float* copy, float* out, float factor, long long count) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < count) out[i] = copy[i] * factor;
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  const dim3 grid(flashcore::ceil_div(s.N, 256));
  flashcore::Plan p;
  p.add({.kernel = "copy_kernel", .grid = grid, .block = dim3(256)});
  p.add({.kernel = "multiply_kernel", .grid = grid, .block = dim3(256)});
  p.workspace_bytes = s.N * sizeof(float);
  return p;
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                          void* workspace, cudaStream_t stream) {
  float* copy = static_cast<float*>(workspace);
  const cudaError_t error =
      flashcore::run(p.launches[0], copy_kernel, stream, static_cast<const float*>(a.x), copy, s.N);
  if (error != cudaSuccess) return error;
  return flashcore::run(p.launches[1], multiply_kernel, stream, static_cast<const float*>(copy),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), s.N);
}

FLASHCORE_VARIANT(plan, launch)
