// Bulk tensor copies (TMA): one thread requests a box of a tensor [B, H, S, D], and a barrier counts its bytes.
//
// Rows past S arrive as zeros and count as arrived bytes. A box is at most 64 elements wide (the swizzle's 128 bytes):
// a head dimension of 128 needs two.
#pragma once

#include <attention/hopper/barrier.cuh>

#include <cuda.h>

namespace hopper {

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int column, int row, int head, int batch,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

}  // namespace hopper
