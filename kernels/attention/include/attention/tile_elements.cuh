// tile.cuh's copies, one element at a time: what they were before anybody vectorised them.
//
// Consecutive threads still move consecutive elements, so a warp's accesses are coalesced: the same
// sectors are read, by eight times as many instructions. Here for comparison alone.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>

namespace attention {

// As load_rows: rows [0, valid) are copied, rows [valid, kRows) filled with zeros.
template <int kRows, int kCols, int kStride, int kThreads>
__device__ __forceinline__ void load_elements(half* __restrict__ tile, const half* __restrict__ source,
                                              std::size_t source_stride, int valid) {
#pragma unroll 8
  for (int i = threadIdx.x; i < kRows * kCols; i += kThreads) {
    const int row = i / kCols;
    const int col = i % kCols;
    tile[row * kStride + col] = row < valid ? source[row * source_stride + col] : __float2half_rn(0.0f);
  }
}

// As store_rows: rows [0, valid), row r multiplied by factor(r).
template <int kRows, int kCols, int kStride, int kThreads, typename Factor>
__device__ __forceinline__ void store_elements(half* __restrict__ target, std::size_t target_stride,
                                               const float* __restrict__ tile, int valid, Factor factor) {
#pragma unroll 8
  for (int i = threadIdx.x; i < kRows * kCols; i += kThreads) {
    const int row = i / kCols;
    const int col = i % kCols;
    if (row < valid) target[row * target_stride + col] = __float2half_rn(tile[row * kStride + col] * factor(row));
  }
}

}  // namespace attention
