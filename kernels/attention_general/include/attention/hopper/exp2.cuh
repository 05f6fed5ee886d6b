// 2^x on the special-function unit (16 per clock and SM).
#pragma once

namespace hopper {

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace hopper
