// A warp's own products (mma.sync) from swizzled panels: slower than wgmma, but warps can decide independently.
#pragma once

#include <attention/hopper/registers.cuh>

namespace hopper {

// d = Q · Kᵀ for the 16 query rows that start at `queries` and kCount * 2 keys from `keys`; d has the layout of a
// warpgroup's product. Panels are the given number of bytes apart.
template <int kCount, int kSteps>
__device__ __forceinline__ void multiply_alone(float (&d)[kCount], uint32_t queries, int query_panel_bytes,
                                               uint32_t keys, int key_panel_bytes, int lane) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) d[i] = 0.0f;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const int panel = step / 4, chunk = step % 4 * 2;
    uint32_t a[4];
    load_operand(a, queries + panel * query_panel_bytes, chunk, lane);
    const uint32_t at = keys + panel * key_panel_bytes + lane % 8 * 128 + (((chunk + lane / 8 % 2) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {  // eight keys; two registers of them at a time, since none are free
      uint32_t b[2];
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(b[0]), "=r"(b[1])
                   : "r"(at + i / 4 * 8 * 128)
                   : "memory");
      asm volatile(
#if ELEMENT_BF16
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
}

}  // namespace hopper
