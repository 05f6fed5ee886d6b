// cp.async, ldmatrix and mma.sync, and a row of 16 bytes from shared memory.
#include <cuda_fp16.h>

namespace {

constexpr int kThreads = 128;
constexpr int kSteps = 4;
constexpr int kRow = 32;  // floats of a row of the bias

__device__ __forceinline__ void copy_async(void* to, const void* from) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

__device__ __forceinline__ void load_fragment(unsigned (&r)[4], const __half* tile, int step) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tile + 512 * step + 8 * threadIdx.x));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    mma_kernel(const __half* __restrict__ x, const __half* __restrict__ y, float* __restrict__ out, int tiles) {
  __shared__ alignas(16) __half tile_a[4096];
  __shared__ alignas(16) __half tile_b[4096];
  __shared__ alignas(16) float bias[kThreads * kRow / 8];
  const int t = threadIdx.x;
  float c[4] = {};
  for (int i = 0; i < tiles; ++i) {
    {  // next tile
      copy_async(tile_a + 8 * t, x + 1024 * i + 8 * t);
      copy_async(tile_b + 8 * t, y + 1024 * i + 8 * t);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    // products
    for (int step = 0; step < kSteps; ++step) {
      unsigned a[4], b[4];
      load_fragment(a, tile_a, step);
      load_fragment(b, tile_b, step);
      multiply(c, a, b);
    }
    __syncthreads();
  }
  for (int i = 0; i < kRow / 8; ++i) bias[t + kThreads * i] = c[i & 3];
  __syncthreads();
  const float4 row = *reinterpret_cast<const float4*>(bias + kRow / 8 * (t ^ 5));  // bias
  reinterpret_cast<float4*>(out)[blockIdx.x * kThreads + t] =
      make_float4(c[0] + row.x, c[1] + row.y, c[2] + row.z, c[3] + row.w);
}
