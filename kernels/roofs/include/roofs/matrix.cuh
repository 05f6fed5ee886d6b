// The element types of the matrix kernels, and mma.sync for each of them, with fp32 accumulation.
//
// An operand row of one instruction's depth is 32 bytes in every type (16 elements of 2 bytes, 32 of 1), and a
// lane's words have the same byte offsets in all of them: only the instruction's name differs.
#pragma once

#include <cstdint>

#define ROOFS_FP16 16
#define ROOFS_BF16 17
#define ROOFS_FP8 8

#ifndef ELEMENT
#define ELEMENT ROOFS_FP16
#endif

#if ELEMENT == ROOFS_FP16
#define ROOFS_DEPTH "k16"
#define ROOFS_TYPES "f32.f16.f16"
#elif ELEMENT == ROOFS_BF16
#define ROOFS_DEPTH "k16"
#define ROOFS_TYPES "f32.bf16.bf16"
#elif ELEMENT == ROOFS_FP8
#define ROOFS_DEPTH "k32"
#define ROOFS_TYPES "f32.e4m3.e4m3"
#else
#error "ELEMENT must be 16 (fp16), 17 (bf16) or 8 (fp8 e4m3)"
#endif

namespace roofs {

constexpr int kStepBytes = 32;  // of an operand row, per instruction

struct FragmentA {  // rows g and g + 8, low and high half of the step; g = lane / 4
  uint32_t word[4];
};

struct FragmentB {  // column g, low and high half of the step
  uint32_t word[2];
};

struct FragmentC {  // row g: columns 2t and 2t + 1, then row g + 8; t = lane % 4
  float value[4];
};

// c = a · b + c, or a · b alone if `fresh`: then the zero is no register and costs nothing.
__device__ inline void multiply(FragmentC& c, const FragmentA& a, const FragmentB& b, bool fresh) {
  const float zero = 0.0f;
  asm volatile("mma.sync.aligned.m16n8" ROOFS_DEPTH ".row.col." ROOFS_TYPES ".f32"
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(c.value[0]), "=f"(c.value[1]), "=f"(c.value[2]), "=f"(c.value[3])
               : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
                 "f"(fresh ? zero : c.value[0]), "f"(fresh ? zero : c.value[1]), "f"(fresh ? zero : c.value[2]),
                 "f"(fresh ? zero : c.value[3]));
}

}  // namespace roofs
