// Sums modulo 2³²: the sum proves which data were read, whatever the order.
#pragma once

#include <cstdint>

namespace roofs {

// Two independent sums, so that a vector costs two three-operand additions.
struct Checksum {
  uint32_t low = 0;
  uint32_t high = 0;

  __device__ void add(uint4 v) {
    low += v.x + v.y;
    high += v.z + v.w;
  }
};

// The block's sum, written to *out by its first thread. Must be called by the whole block.
template <int kThreads>
__device__ void store_sum(Checksum sum, uint32_t* out) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps, at most 32 of them");
  __shared__ uint32_t of_warp[kThreads / 32];
  const uint32_t own = __reduce_add_sync(0xffffffffu, sum.low + sum.high);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const uint32_t value = threadIdx.x < kThreads / 32 ? of_warp[threadIdx.x] : 0;
  const uint32_t total = __reduce_add_sync(0xffffffffu, value);
  if (threadIdx.x == 0) *out = total;
}

}  // namespace roofs
