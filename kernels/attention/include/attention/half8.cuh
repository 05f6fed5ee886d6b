// Eight halves as one 16-byte access, the widest per thread.
#pragma once

#include <cuda_fp16.h>

namespace attention {

struct alignas(16) Half8 {
  half2 pair[4];
};

// `p` must be 16-byte aligned; it may point to global or to shared memory.
__device__ __forceinline__ Half8 load_half8(const half* p) {
  union {
    uint4 bits;
    Half8 value;
  };
  bits = *reinterpret_cast<const uint4*>(p);
  return value;
}

__device__ __forceinline__ void store_half8(half* p, const Half8& x) {
  union {
    Half8 value;
    uint4 bits;
  };
  value = x;
  *reinterpret_cast<uint4*>(p) = bits;
}

// Like store_half8, to global memory, and guaranteed to be one access: after a condition on the row, the
// compiler splits the plain form into four 4-byte stores.
__device__ __forceinline__ void store_half8_global(half* p, const Half8& x) {
  const auto word = [&x](int i) { return *reinterpret_cast<const unsigned*>(&x.pair[i]); };
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(word(0)),
               "r"(word(1)), "r"(word(2)), "r"(word(3))
               : "memory");
}

__device__ __forceinline__ Half8 zero_half8() {
  const half2 zero = __float2half2_rn(0.0f);
  return Half8{{zero, zero, zero, zero}};
}

__device__ __forceinline__ void to_floats(const Half8& x, float (&y)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(x.pair[i]);
    y[2 * i] = f.x;
    y[2 * i + 1] = f.y;
  }
}

// Rounds to nearest even.
__device__ __forceinline__ Half8 to_half8(const float (&x)[8]) {
  Half8 y;
#pragma unroll
  for (int i = 0; i < 4; ++i) y.pair[i] = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
  return y;
}

}  // namespace attention
