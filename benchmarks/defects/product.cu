// c = a · b in tiles of 64 × 64 by four warps. CASE chooses one planted defect; the table is in defects.toml.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <flashcore/problem.h>

#define SOUND 0
#define CUDA_CORES 1
#define SYNCHRONOUS 2
#define CONFLICTS 3
#define SCALAR_FRAGMENTS 4

constexpr int tile = 64, depth = 32;
#if CASE == CONFLICTS
constexpr int a_pitch = 64, b_pitch = 64;
#else
constexpr int a_pitch = depth + 8, b_pitch = tile + 8;
#endif

extern "C" __global__ void __launch_bounds__(128) product_kernel(const half* __restrict__ a, const half* __restrict__ b,
                                                                float* __restrict__ c, int n, int k) {
  using namespace nvcuda;
  __shared__ __align__(128) half as[2][tile][a_pitch];
  __shared__ __align__(128) half bs[2][depth][b_pitch];
  const int row = blockIdx.y * tile, column = blockIdx.x * tile, warp = threadIdx.x / 32;
  const auto load = [&](int stage, int at) {
#if CASE == SYNCHRONOUS || CASE == CUDA_CORES
    for (int i = threadIdx.x; i < tile * depth / 8; i += 128) {
      *reinterpret_cast<int4*>(&as[stage][i / (depth / 8)][i % (depth / 8) * 8]) =
          *reinterpret_cast<const int4*>(a + static_cast<long long>(row + i / (depth / 8)) * k + at + i % (depth / 8) * 8);
      *reinterpret_cast<int4*>(&bs[stage][i / (tile / 8)][i % (tile / 8) * 8]) =
          *reinterpret_cast<const int4*>(b + static_cast<long long>(at + i / (tile / 8)) * n + column + i % (tile / 8) * 8);
    }
#else
    for (int i = threadIdx.x; i < tile * depth / 8; i += 128) {
      __pipeline_memcpy_async(&as[stage][i / (depth / 8)][i % (depth / 8) * 8],
                              a + static_cast<long long>(row + i / (depth / 8)) * k + at + i % (depth / 8) * 8, 16);
      __pipeline_memcpy_async(&bs[stage][i / (tile / 8)][i % (tile / 8) * 8],
                              b + static_cast<long long>(at + i / (tile / 8)) * n + column + i % (tile / 8) * 8, 16);
    }
    __pipeline_commit();
#endif
  };
#if CASE == CUDA_CORES
  float sums[8][4] = {};
  const int r0 = threadIdx.x / 16 * 8, c0 = threadIdx.x % 16 * 4;
  for (int at = 0; at < k; at += depth) {
    load(0, at);
    __syncthreads();
    for (int j = 0; j < depth; ++j) {
      for (int r = 0; r < 8; ++r) {
        for (int s = 0; s < 4; ++s) sums[r][s] = fmaf(__half2float(as[0][r0 + r][j]), __half2float(bs[0][j][c0 + s]), sums[r][s]);
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r) {
    for (int s = 0; s < 4; ++s) c[static_cast<long long>(row + r0 + r) * n + column + c0 + s] = sums[r][s];
  }
#elif CASE == SCALAR_FRAGMENTS
  // mma.m16n8k16 with fragments gathered half by half.
  float sums[8][4] = {};
  const int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  load(0, 0);
  for (int at = 0; at < k; at += depth) {
    const int stage = at / depth & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (at + depth < k) load(stage ^ 1, at + depth);
    for (int j = 0; j < depth; j += 16) {
      const auto two = [](half low, half high) {
        return static_cast<unsigned>(__half_as_ushort(low)) | static_cast<unsigned>(__half_as_ushort(high)) << 16;
      };
      unsigned x[4];
      for (int q = 0; q < 4; ++q) {
        const volatile unsigned short* p =
            reinterpret_cast<const unsigned short*>(&as[stage][warp * 16 + group + q % 2 * 8][j + pair + q / 2 * 8]);
        x[q] = p[0] | static_cast<unsigned>(p[1]) << 16;
      }
      for (int s = 0; s < 8; ++s) {
        const half(*from)[b_pitch] = bs[stage] + j;
        const unsigned y0 = two(from[pair][s * 8 + group], from[pair + 1][s * 8 + group]);
        const unsigned y1 = two(from[pair + 8][s * 8 + group], from[pair + 9][s * 8 + group]);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(sums[s][0]), "+f"(sums[s][1]), "+f"(sums[s][2]), "+f"(sums[s][3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
      }
    }
    __syncthreads();
  }
  for (int s = 0; s < 8; ++s) {
    for (int q = 0; q < 4; ++q) {
      c[static_cast<long long>(row + warp * 16 + group + q / 2 * 8) * n + column + s * 8 + pair + q % 2] = sums[s][q];
    }
  }
#else
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0f);
  load(0, 0);
  for (int at = 0; at < k; at += depth) {
#if CASE == SYNCHRONOUS
    constexpr int stage = 0;
    if (at > 0) load(0, at);
    __syncthreads();
#else
    const int stage = at / depth & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (at + depth < k) load(stage ^ 1, at + depth);
#endif
    for (int j = 0; j < depth; j += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
      wmma::load_matrix_sync(x, &as[stage][warp * 16][j], a_pitch);
      for (int s = 0; s < 4; ++s) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
        wmma::load_matrix_sync(y, &bs[stage][j][s * 16], b_pitch);
        wmma::mma_sync(sums[s], x, y, sums[s]);
      }
    }
    __syncthreads();
  }
  for (int s = 0; s < 4; ++s) {
    float* to = c + static_cast<long long>(row + warp * 16) * n + column + s * 16;
    wmma::store_matrix_sync(to, sums[s], n, wmma::mem_row_major);
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  return flashcore::Plan().add({.kernel = "product_kernel", .grid = dim3(s.N / tile, s.M / tile), .block = dim3(128)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], product_kernel, stream, static_cast<const half*>(a.a), static_cast<const half*>(a.b),
                        static_cast<float*>(a.c), static_cast<int>(s.N), static_cast<int>(s.K));
}

FLASHCORE_VARIANT(plan, launch)
