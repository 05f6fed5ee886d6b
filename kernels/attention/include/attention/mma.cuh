// mma.sync m16n8k16: d += a · b, halves in, fp32 accumulators, with a specified layout.
//
// With g = lane / 4 and t = lane % 4, a pair being two neighboring columns in one register:
//
//   a (16 × 16)  a[0]: row g,     columns 2t, 2t + 1     a[2]: the same, 8 columns further
//                a[1]: row g + 8, columns 2t, 2t + 1     a[3]: the same, 8 columns further
//   b (16 × 8)   b0: rows 2t, 2t + 1 of column g         b1: the same, 8 rows further
//   d (16 × 8)   d[0], d[1]: row g, columns 2t, 2t + 1   d[2], d[3]: the same in row g + 8
//
// Two adjacent accumulators have the layout of one a: a product's result, rounded to halves, can be the left
// operand of the next product without moving between lanes (to_operand).
#pragma once

#include <cuda_fp16.h>

namespace attention {

constexpr int kMmaRows = 16;
constexpr int kMmaCols = 8;
constexpr int kMmaDepth = 16;

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats as halves in one register, `low` in the low half; rounds to nearest even.
__device__ __forceinline__ unsigned pack_halves(float low, float high) {
  const half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// Accumulators of columns 0 to 7 and 8 to 15 as the left operand of 16 columns.
__device__ __forceinline__ void to_operand(unsigned (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack_halves(left[0], left[1]);
  a[1] = pack_halves(left[2], left[3]);
  a[2] = pack_halves(right[0], right[1]);
  a[3] = pack_halves(right[2], right[3]);
}

}  // namespace attention
