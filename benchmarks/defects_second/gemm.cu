// c = rounds · a · bᵀ, halves in, fp32 out. CASE chooses one planted defect; the table is in defects.toml.
#include <cuda_fp16.h>

#include <flashcore/problem.h>

#define CASE_gemm_sound 0
#define CASE_gemm_single 1
#define CASE_gemm_conflicts 2
#define CASE_gemm_halves 3
#define CASE_gemm_scalar 4
#define CASE_gemm_split 5
#define CASE_gemm_tail 6
#define CASE_gemm_spills 7
#define CASE_gemm_serialized 8

__device__ unsigned shared_address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

__device__ void copy_16(void* to, const half* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int most>
__device__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(most) : "memory");
}

#if CASE == CASE_gemm_scalar
// 64 × 64 of c per block, 4 × 4 per thread, products on CUDA cores.
constexpr int tile_m = 64, tile_n = 64, depth = 32, threads = 256, smem = 0;

extern "C" __global__ void gemm_kernel(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c,
                                       int n, int k, int rounds, float) {
  __shared__ __align__(16) float as[depth][tile_m], bs[depth][tile_n];  // element (d, r) at column r ^ (d & 24)
  const int row = blockIdx.y * tile_m, column = blockIdx.x * tile_n;
  const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  float sums[4][4] = {};
  for (int at = 0; at < rounds * k; at += depth) {
    const int r = threadIdx.x / 4, d = threadIdx.x % 4 * 8;
    const uint4 va = *reinterpret_cast<const uint4*>(a + static_cast<long long>(row + r) * k + at % k + d);
    const uint4 vb = *reinterpret_cast<const uint4*>(b + static_cast<long long>(column + r) * k + at % k + d);
    __syncthreads();
    for (int i = 0; i < 8; ++i) {
      as[d + i][r ^ d] = __half2float(reinterpret_cast<const half*>(&va)[i]);
      bs[d + i][r ^ d] = __half2float(reinterpret_cast<const half*>(&vb)[i]);
    }
    __syncthreads();
    for (int j = 0; j < depth; ++j) {
      const float4 p = *reinterpret_cast<const float4*>(&as[j][y ^ (j & 24)]);
      const float4 q = *reinterpret_cast<const float4*>(&bs[j][x ^ (j & 24)]);
      const float u[4] = {p.x, p.y, p.z, p.w}, v[4] = {q.x, q.y, q.z, q.w};
      for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] += u[i / 4] * v[i % 4];
    }
  }
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<float4*>(c + static_cast<long long>(row + y + i) * n + column + x) =
        make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
  }
}

#elif CASE == CASE_gemm_serialized
// A warp group, 64 × 128 of c per block. Rows of tiles are 64 halves, their 16-byte chunks swizzled as wgmma reads them.
constexpr int tile_m = 64, tile_n = 128, depth = 64, threads = 128, smem = (tile_m + tile_n) * depth * 2 + 1024;

// The descriptor of a tile: rows of 128 bytes, groups of 8 rows 1,024 bytes from each other, 128-byte swizzle.
__device__ unsigned long long described(unsigned address) {
  return (address & 0x3FFFF) >> 4 | 1ULL << 16 | 64ULL << 32 | 1ULL << 62;
}

extern "C" __global__ void __launch_bounds__(threads)
    gemm_kernel(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int n, int k, int rounds,
                float one) {
  extern __shared__ char dynamic[];
  char* as = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const int row = blockIdx.y * tile_m, column = blockIdx.x * tile_n, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sums[64] = {};
  for (int at = 0; at < k; at += depth) {
    for (int i = threadIdx.x; i < (tile_m + tile_n) * 8; i += threads) {
      const int r = i / 8, chunk = i % 8;
      const half* from = r < tile_m ? a + (row + r) * k : b + (column + r - tile_m) * k;
      copy_16(as + r * 128 + (chunk ^ r % 8) * 16, from + at + chunk * 8);
    }
    commit();
    wait<0>();
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    const unsigned long long da = described(shared_address(as)), db = described(shared_address(as + tile_m * 128));
    for (int round = 0; round < rounds; ++round) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        asm volatile(
            "{.reg .pred add; setp.eq.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, add, 1, 1, 0, 0;}"
#define EIGHT(i)                                                                                                \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
            : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
            : "l"(da + 2 * j), "l"(db + 2 * j));
        sums[0] *= one;  // between commit and wait, where accumulators are to be left alone
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    __syncthreads();
  }
  for (int i = 0; i < 64; i += 4) {
    float* to = c + static_cast<long long>(row + warp * 16 + lane / 4) * n + column + i * 2 + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(sums[i], sums[i + 1]);
    *reinterpret_cast<float2*>(to + 8LL * n) = make_float2(sums[i + 2], sums[i + 3]);
  }
}

#else
// 128 × 128 of c per block, 64 × 32 per warp, operands copied `stages - 1` tiles ahead.
constexpr int tile_m = 128, tile_n = 128, depth = 32, threads = 256;
#if CASE == CASE_gemm_conflicts
constexpr int pitch = depth;
#else
constexpr int pitch = depth + 8;
#endif
#if CASE == CASE_gemm_single
constexpr int stages = 1;
#elif CASE == CASE_gemm_tail
constexpr int stages = 6;
#elif CASE == CASE_gemm_spills
constexpr int stages = 3;
#else
constexpr int stages = 4;
#endif
constexpr int stage = (tile_m + tile_n) * pitch, smem = stages * stage * 2;
#if CASE == CASE_gemm_spills
constexpr int blocks = 4;  // per SM, as if the accumulators were all that needs registers
#elif CASE == CASE_gemm_tail
constexpr int blocks = 1;
#else
constexpr int blocks = 2;
#endif

__device__ void load_matrices(unsigned (&to)[4], const half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(at)));
}

// Two halves, read one by one.
__device__ unsigned pair(const half* at) {
  const volatile unsigned short* bits = reinterpret_cast<const volatile unsigned short*>(at);
  return bits[0] | static_cast<unsigned>(bits[1]) << 16;
}

__device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(threads, blocks)
    gemm_kernel(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int n, int k, int rounds,
                float) {
  extern __shared__ half dynamic[];
  const int row = blockIdx.y * tile_m, column = blockIdx.x * tile_n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top = warp / 4 * 64, left = warp % 4 * 32;
  const int tiles = rounds * (k / depth);
  const int r = threadIdx.x / 4, chunk = threadIdx.x % 4 * 8;  // of a tile, which a thread copies and every 64th row on
  const half* from_a = a + static_cast<long long>(row + r) * k + chunk;
  const half* from_b = b + static_cast<long long>(column + r) * k + chunk;
  int next = 0;
  auto copy = [&](int number) {
    half* to = dynamic + number % stages * stage + r * pitch + chunk;
    copy_16(to, from_a + next);
    copy_16(to + 64 * pitch, from_a + 64LL * k + next);
    copy_16(to + 128 * pitch, from_b + next);
    copy_16(to + 192 * pitch, from_b + 64LL * k + next);
    next = next + depth == k ? 0 : next + depth;
  };
  float sums[4][4][4] = {};
  for (int t = 0; t < stages - 1; ++t) {
    if (t < tiles) copy(t);
    commit();
  }
  for (int t = 0; t < tiles; ++t) {
#if CASE == CASE_gemm_single
    copy(t);
    commit();
    wait<0>();
    __syncthreads();
#else
    wait<stages - 2>();
    __syncthreads();
    if (t + stages - 1 < tiles) copy(t + stages - 1);
    commit();
#endif
    const half* as = dynamic + t % stages * stage;
    const half* bs = as + tile_m * pitch;
#pragma unroll
    for (int d = 0; d < depth; d += 16) {
      unsigned y[2][4];
#if CASE == CASE_gemm_halves
      for (int i = 0; i < 2; ++i) {
        const half* at = bs + (left + i * 16 + lane / 4) * pitch + d + lane % 4 * 2;
        y[i][0] = pair(at), y[i][1] = pair(at + 8), y[i][2] = pair(at + 8 * pitch), y[i][3] = pair(at + 8 * pitch + 8);
      }
#else
      for (int i = 0; i < 2; ++i) {
        load_matrices(y[i], bs + (left + i * 16 + lane / 16 * 8 + lane % 8) * pitch + d + lane / 8 % 2 * 8);
      }
#endif
      for (int i = 0; i < 4; ++i) {
#if CASE == CASE_gemm_halves
        const half* at = as + (top + i * 16 + lane / 4) * pitch + d + lane % 4 * 2;
        const unsigned x[4] = {pair(at), pair(at + 8 * pitch), pair(at + 8), pair(at + 8 * pitch + 8)};
#else
        unsigned x[4];
        load_matrices(x, as + (top + i * 16 + lane % 16) * pitch + d + lane / 16 * 8);
#endif
        for (int j = 0; j < 4; ++j) multiply(sums[i][j], x, y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
      }
    }
#if CASE == CASE_gemm_single
    __syncthreads();
#endif
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      float* to = c + static_cast<long long>(row + top + i * 16 + lane / 4) * n + column + left + j * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i][j][0], sums[i][j][1]);
      *reinterpret_cast<float2*>(to + 8LL * n) = make_float2(sums[i][j][2], sums[i][j][3]);
    }
  }
}
#endif

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.M % tile_m || s.N % tile_n || s.K % depth) p.error = "expected whole tiles";
  return p.add({.kernel = "gemm_kernel",
                .grid = dim3(s.N / tile_n, s.M / tile_m),
                .block = dim3(threads),
                .dynamic_smem = smem});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], gemm_kernel, stream, static_cast<const half*>(a.a),
                        static_cast<const half*>(a.b), static_cast<float*>(a.c), static_cast<int>(s.N),
                        static_cast<int>(s.K), static_cast<int>(a.rounds), 1.0f);
}

FLASHCORE_VARIANT(plan, launch)
