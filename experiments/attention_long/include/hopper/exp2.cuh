// 2^x, by the special-function unit (16 a clock and SM) or by the multipliers (128 a clock and SM).
#pragma once

#include <cstdint>

namespace hopper {

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x = 2^n · 2^f, n the nearest integer. Adding 1.5 · 2^23 leaves n in the low bits of the sum, from where it goes
// into the exponent. The cubic on [-0.5, 0.5] is within 7.5e-5: a sixth of a step of fp16, to which the result is
// rounded. Below -126 the answer is about 2^-126 instead of 0, which rounds to 0 as well.
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kMagic = 12582912.0f;
  x = fmaxf(x, -126.0f);
  const float shifted = x + kMagic;
  const float f = x - (shifted - kMagic);
  float y = fmaf(0.0551716666f, f, 0.242611122f);
  y = fmaf(y, f, 0.693260988f);
  y = fmaf(y, f, 0.999928070f);
  return __uint_as_float((__float_as_uint(shifted) << 23) + __float_as_uint(y));
}

}  // namespace hopper
