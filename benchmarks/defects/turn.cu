// out = the transpose of x, by tiles of 32 × 32 in shared memory with rows of PITCH floats; 0: without shared memory.
#include <flashcore/problem.h>

extern "C" __global__ void turn_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
  const int left = blockIdx.x * 32, top = blockIdx.y * 32;
#if PITCH == 0
  for (int r = threadIdx.y; r < 32; r += 8) {
    out[static_cast<long long>(left + threadIdx.x) * rows + top + r] =
        x[static_cast<long long>(top + r) * columns + left + threadIdx.x];
  }
#else
  __shared__ float tile[32][PITCH];
  for (int r = threadIdx.y; r < 32; r += 8) {
    tile[r][threadIdx.x] = x[static_cast<long long>(top + r) * columns + left + threadIdx.x];
  }
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8) {
    out[static_cast<long long>(left + r) * rows + top + threadIdx.x] = tile[threadIdx.x][r];
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  return flashcore::Plan().add({.kernel = "turn_kernel", .grid = dim3(s.K / 32, s.M / 32), .block = dim3(32, 8)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], turn_kernel, stream, static_cast<const float*>(a.x), static_cast<float*>(a.out),
                        static_cast<int>(s.M), static_cast<int>(s.K));
}

FLASHCORE_VARIANT(plan, launch)
