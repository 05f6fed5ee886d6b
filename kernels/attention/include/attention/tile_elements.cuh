// The functions of tile.cuh and output_piece.cuh, one element at a time: the version before
// vectorization.
//
// Consecutive threads still access consecutive elements, so a warp's accesses to global memory are coalesced:
// the same sectors are read, with eight times as many instructions.
#pragma once

#include <attention/head.cuh>
#include <attention/wmma.cuh>

#include <cstddef>

namespace attention {

// Like load_rows: rows [0, valid) are copied, rows [valid, kRows) filled with zeros.
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

// Like store_rows: rows [0, valid), row r multiplied by factor(r).
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

// Like rescale_piece of output_piece.cuh, for one warp's 16 × 16 piece: row r multiplied by factors[r].
__device__ __forceinline__ void rescale_elements(float* piece, int stride, const float* factors) {
  for (int i = threadIdx.x % kWarp; i < kMma * kMma; i += kWarp) {
    piece[i / kMma * stride + i % kMma] *= factors[i / kMma];
  }
}

}  // namespace attention
