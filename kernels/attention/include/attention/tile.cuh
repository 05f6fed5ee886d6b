// Tiles between global and shared memory, moved by all threads of a block in 16-byte pieces.
//
// Neither function synchronizes: a barrier is needed before other threads read a tile. Strides are in
// elements. A padded stride (see kPad) avoids bank conflicts between rows.
#pragma once

#include <attention/half8.cuh>

#include <cstddef>

namespace attention {

// Copies rows [0, valid) of `source` into shared memory and fills rows [valid, kRows) with zeros.
//
// The zeros matter. A padded key scores 0, which the softmax must still mask, but a padded row of V is
// multiplied by the weight 0, and 0 times uninitialized memory could be NaN.
template <int kRows, int kCols, int kStride, int kThreads>
__device__ __forceinline__ void load_rows(half* __restrict__ tile, const half* __restrict__ source,
                                          std::size_t source_stride, int valid) {
  static_assert(kCols % 8 == 0 && kStride % 8 == 0 && kStride >= kCols, "rows are moved 8 halves at a time");
  constexpr int kPieces = kCols / 8;  // per row
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int col = i % kPieces * 8;
    store_half8(tile + row * kStride + col,
                row < valid ? load_half8(source + row * source_stride + col) : zero_half8());
  }
}

// Writes rows [0, valid) of a float tile to global memory as halves, row r multiplied by factor(r).
template <int kRows, int kCols, int kStride, int kThreads, typename Factor>
__device__ __forceinline__ void store_rows(half* __restrict__ target, std::size_t target_stride,
                                           const float* __restrict__ tile, int valid, Factor factor) {
  static_assert(kCols % 8 == 0 && kStride % 4 == 0 && kStride >= kCols, "rows are moved 8 values at a time");
  constexpr int kPieces = kCols / 8;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int col = i % kPieces * 8;
    if (row >= valid) continue;
    const float* from = tile + row * kStride + col;
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    const float f = factor(row);
    store_half8_global(target + row * target_stride + col,
                       to_half8({low.x * f, low.y * f, low.z * f, low.w * f,
                                 high.x * f, high.y * f, high.z * f, high.w * f}));
  }
}

}  // namespace attention
