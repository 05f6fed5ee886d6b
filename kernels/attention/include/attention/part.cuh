// A warp's part of O in shared memory, for keys split over warps: fp32, rows of 64.
#pragma once

#include <attention/mma_stripe.cuh>

namespace attention {

// The position of column `col` in a part's row: groups of 8 floats are XORed with the row, so that the 8-byte
// writes of accumulators (4 rows per phase) and the 16-byte reads of the merge both touch each bank once.
__device__ __forceinline__ int part_at(int row, int col) { return row * kHeadDim + (col ^ (row % 8 * 8)); }

// Stores this lane's columns of row g (h = 0) or g + 8 of a stripe as row `row` of the part.
__device__ __forceinline__ void store_part_row(float* part, int row, const float (&o)[kOutCols][4], int h) {
#pragma unroll
  for (int j = 0; j < kOutCols; ++j) {
    *reinterpret_cast<float2*>(part + part_at(row, j * kMmaCols + threadIdx.x % kWarp % 4 * 2)) =
        make_float2(o[j][2 * h], o[j][2 * h + 1]);
  }
}

// Calls f(piece) for each of kPieces pieces, which the block's kThreads threads share.
template <int kPieces, int kThreads, typename F>
__device__ __forceinline__ void for_each_piece(F&& f) {
  if constexpr (kPieces == kThreads) {
    f(threadIdx.x);
  } else {
    for (unsigned piece = threadIdx.x; piece < kPieces; piece += kThreads) f(piece);
  }
}

}  // namespace attention
