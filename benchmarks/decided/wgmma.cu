// A main loop of wgmma on tiles that one thread copies with TMA.
#include <cstdint>

namespace {

constexpr int kTile = 64 * 64;

__device__ __forceinline__ unsigned shared(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint64_t descriptor(const void* tile) {
  return static_cast<uint64_t>((shared(tile) & 0x3ffff) >> 4) | (uint64_t{1} << 16) | (uint64_t{64} << 32) | (uint64_t{1} << 62);
}

__device__ __forceinline__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_old(float (&d)[4], unsigned a, unsigned b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%4,%5}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a), "r"(b));
}

__device__ __forceinline__ void load_tile(void* to, const void* map, unsigned bar, int column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared(to)),
      "l"(map), "r"(column), "r"(0), "r"(bar)
      : "memory");
}

__device__ __forceinline__ void load_tile_old(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void store_tile(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared(from)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void wait_for(unsigned bar, int phase) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}\n" ::"r"(bar),
      "r"(phase)
      : "memory");
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 1)
    wgmma_kernel(const void* map, const float* __restrict__ x, float* __restrict__ out, int tiles) {
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned bar = shared(smem + 4 * kTile);
  if (threadIdx.x >= 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128) {
      for (int i = 0; i < tiles; ++i) load_tile(smem, map, bar, i);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[4] = {};
  // main loop
  for (int i = 0; i < tiles; ++i) {
    wait_for(bar, i & 1);
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    const uint64_t a = descriptor(smem), b = descriptor(smem + 2 * kTile);
#pragma unroll
    for (int k = 0; k < 8; ++k) multiply(d, a + 2 * k, b + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  }
  reinterpret_cast<float4*>(smem)[threadIdx.x] = make_float4(d[0], d[1], d[2], d[3]);
  if (threadIdx.x == 0) store_tile(out, smem, 16 * 128);
}
