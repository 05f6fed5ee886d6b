// matmul: tensor cores through WMMA. A block of 4 warps makes a tile of 64 × 64, each warp 32 × 32.

#include <flashcore/problem.h>
#include <mma.h>

namespace {

using namespace nvcuda;
constexpr int kTile = 64, kDepth = 32, kThreads = 128;

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    matmul_cuda_kernel(const __half* __restrict__ a, const __half* __restrict__ b, __half* __restrict__ c, int N,
                       int K) {
  __shared__ __half a_tile[kTile][kDepth + 8];
  __shared__ __half b_tile[kDepth][kTile + 8];
  __shared__ float c_tile[kTile][kTile + 4];
  const int m = blockIdx.y * kTile, n = blockIdx.x * kTile, warp = threadIdx.x / 32;
  const int row = warp / 2 * 32, column = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> total[2][2];
  for (auto& line : total)
    for (auto& part : line) wmma::fill_fragment(part, 0.0f);
  for (int first = 0; first < K; first += kDepth) {
    // 8 halves, 16 bytes, at once.
    for (int i = threadIdx.x * 8; i < kTile * kDepth; i += kThreads * 8) {
      *reinterpret_cast<uint4*>(&a_tile[i / kDepth][i % kDepth]) =
          *reinterpret_cast<const uint4*>(&a[std::size_t(m + i / kDepth) * K + first + i % kDepth]);
      *reinterpret_cast<uint4*>(&b_tile[i / kTile][i % kTile]) =
          *reinterpret_cast<const uint4*>(&b[std::size_t(first + i / kTile) * N + n + i % kTile]);
    }
    __syncthreads();
    for (int k = 0; k < kDepth; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(left[i], &a_tile[row + i * 16][k], kDepth + 8);
        wmma::load_matrix_sync(right[i], &b_tile[k][column + i * 16], kTile + 8);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(total[i][j], left[i], right[j], total[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&c_tile[row + i * 16][column + j * 16], total[i][j], kTile + 4, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads)
    c[std::size_t(m + i / kTile) * N + n + i % kTile] = __float2half(c_tile[i / kTile][i % kTile]);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.M % kTile || s.N % kTile || s.K % kDepth || s.N > INT32_MAX || s.K > INT32_MAX) {
    p.error = "expected M and N to be multiples of 64, and K of 32";
    return p;
  }
  return p.add({"matmul_cuda_kernel", dim3(s.N / kTile, s.M / kTile), dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], matmul_cuda_kernel, stream, a.a, a.b, a.c, s.N, s.K);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
