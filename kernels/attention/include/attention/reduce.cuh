// Reductions over the lanes of a warp. The result is in every lane (butterfly shuffles), so no broadcast
// follows. All 32 lanes must participate.
#pragma once

namespace attention {

constexpr unsigned kAllLanes = 0xffffffffu;

// Over groups of kWidth neighboring lanes; kWidth is a power of two.
template <int kWidth = 32>
__device__ __forceinline__ float warp_max(float x) {
  static_assert(kWidth >= 1 && kWidth <= 32 && (kWidth & (kWidth - 1)) == 0, "a power of two up to 32");
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  }
  return x;
}

template <int kWidth = 32>
__device__ __forceinline__ float warp_sum(float x) {
  static_assert(kWidth >= 1 && kWidth <= 32 && (kWidth & (kWidth - 1)) == 0, "a power of two up to 32");
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

}  // namespace attention
