// product: out = a · b in fp32 on CUDA cores. TILE_M, TILE_N, TILE_K, OF_THREAD_M, OF_THREAD_N, VECTOR.
//
// A block computes TILE_M × TILE_N of the answer: TILE_K columns of a and rows of b at a time are loaded to shared
// memory (a transposed), and each thread has OF_THREAD_M × OF_THREAD_N sums in registers. VECTOR: floats per load of
// a thread from global memory.

#include <flashcore/problem.h>

namespace {

constexpr int kThreads = TILE_M * TILE_N / (OF_THREAD_M * OF_THREAD_N);
static_assert(VECTOR == 1 || VECTOR == 4, "VECTOR: 1 or 4");
static_assert(TILE_M * TILE_K % (kThreads * VECTOR) == 0, "a's tile: whole loads for every thread");
static_assert(TILE_K * TILE_N % (kThreads * VECTOR) == 0, "b's tile: whole loads for every thread");

struct alignas(4 * VECTOR) Loaded {
  float x[VECTOR];
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    product_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int cols,
                   int depth) {
  __shared__ float left[TILE_K][TILE_M];
  __shared__ float right[TILE_K][TILE_N];
  const int row = blockIdx.y * TILE_M;
  const int col = blockIdx.x * TILE_N;
  const int own_row = threadIdx.x / (TILE_N / OF_THREAD_N) * OF_THREAD_M;
  const int own_col = threadIdx.x % (TILE_N / OF_THREAD_N) * OF_THREAD_N;

  float sum[OF_THREAD_M][OF_THREAD_N] = {};
  for (int first = 0; first < depth; first += TILE_K) {
#pragma unroll
    for (int i = threadIdx.x * VECTOR; i < TILE_M * TILE_K; i += kThreads * VECTOR) {
      const int m = i / TILE_K, k = i % TILE_K;
      const Loaded v = *reinterpret_cast<const Loaded*>(a + static_cast<std::size_t>(row + m) * depth + first + k);
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) left[k + j][m] = v.x[j];
    }
#pragma unroll
    for (int i = threadIdx.x * VECTOR; i < TILE_K * TILE_N; i += kThreads * VECTOR) {
      const int k = i / TILE_N, n = i % TILE_N;
      const Loaded v = *reinterpret_cast<const Loaded*>(b + static_cast<std::size_t>(first + k) * cols + col + n);
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) right[k][n + j] = v.x[j];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE_K; ++k) {
      float x[OF_THREAD_M], y[OF_THREAD_N];
#pragma unroll
      for (int m = 0; m < OF_THREAD_M; ++m) x[m] = left[k][own_row + m];
#pragma unroll
      for (int n = 0; n < OF_THREAD_N; ++n) y[n] = right[k][own_col + n];
#pragma unroll
      for (int m = 0; m < OF_THREAD_M; ++m) {
#pragma unroll
        for (int n = 0; n < OF_THREAD_N; ++n) sum[m][n] = fmaf(x[m], y[n], sum[m][n]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < OF_THREAD_M; ++m) {
#pragma unroll
    for (int n = 0; n < OF_THREAD_N; ++n) {
      out[static_cast<std::size_t>(row + own_row + m) * cols + col + own_col + n] = sum[m][n];
    }
  }
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.M % TILE_M || s.N % TILE_N || s.K % TILE_K || s.M * s.N > INT32_MAX) {
    p.error = "expected M, N and K in whole tiles";
    return p;
  }
  return p.add({"product_kernel", dim3(flashcore::ceil_div(s.N, TILE_N), flashcore::ceil_div(s.M, TILE_M)),
                dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], product_kernel, stream, a.a, a.b, a.out, s.N, s.K);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
