// out = x + factor · y on 16-byte vectors of fp32, one fused multiply-add per word.
#pragma once

#include <cstdint>

namespace roofs {

__device__ inline uint32_t multiply_add(float factor, uint32_t y, uint32_t x) {
  return __float_as_uint(fmaf(factor, __uint_as_float(y), __uint_as_float(x)));
}

__device__ inline uint4 multiply_add(float factor, uint4 y, uint4 x) {
  return make_uint4(multiply_add(factor, y.x, x.x), multiply_add(factor, y.y, x.y), multiply_add(factor, y.z, x.z),
                    multiply_add(factor, y.w, x.w));
}

}  // namespace roofs
