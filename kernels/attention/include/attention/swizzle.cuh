// The layout of a 64-half row's 16-byte pieces in shared memory: padded, or swizzled.
//
// ldmatrix reads one column of pieces in eight rows at once. Rows of 64 halves are 128 bytes, all banks
// once, so without a remedy a column of pieces is in the same four banks in every row: 8-way conflicts.
//
//   Padded    rows are 144 bytes: each starts four banks further. It needs an eighth more memory.
//   Swizzled  rows are 128 bytes; piece p of row r is at position p XOR (r mod 8). In eight rows a column
//             of pieces has eight different positions. No memory is unused. WMMA's loads need a constant
//             leading dimension and cannot read it; ldmatrix can, since each lane passes an address.
//
// Design 000 uses d ^ ((n & 1) * 8), which only distinguishes even from odd rows: 4-way conflicts remain.
#pragma once

#include <attention/async_copy.cuh>
#include <attention/head.cuh>

namespace attention {

constexpr int kPiece = 8;                         // halves in 16 bytes
constexpr int kPiecesOfRow = kHeadDim / kPiece;   // 8

struct Padded {
  static constexpr int kPitch = kStride;  // halves from one row to the next
  static __device__ __forceinline__ int at(int row, int piece) { return row * kPitch + piece * kPiece; }
};

struct Swizzled {
  static constexpr int kPitch = kHeadDim;
  static __device__ __forceinline__ int at(int row, int piece) {
    return row * kPitch + (piece ^ (row % kPiecesOfRow)) * kPiece;
  }
};

// Copies rows [0, valid) of a row-major [*, 64] matrix asynchronously with kThreads threads, of which this one
// is `thread`; rows [valid, kRows) are filled with zeros. `tile` is 128-byte aligned.
//
// A thread copies the same piece of every kThreads / 8-th row. A complete tile, as all but the last are, needs
// no bounds check and almost no arithmetic: positions repeat every 8 rows, so addresses differ by constants.
template <typename Layout, int kRows, int kThreads>
__device__ __forceinline__ void load_tile_async(half* tile, const half* source, int valid, int thread) {
  constexpr int kStep = kThreads / kPiecesOfRow;  // rows
  static_assert(kThreads % kPiecesOfRow == 0 && kRows % kStep == 0, "all threads copy equally many pieces");
  const int first = thread / kPiecesOfRow;
  const int piece = thread % kPiecesOfRow;
  const half* from = source + first * kHeadDim + piece * kPiece;
  const auto target = [&](int row) {  // for row first + row, `row` being a compile-time constant
    return tile + Layout::at(first + row % 8, piece) + row / 8 * 8 * Layout::kPitch;
  };
  if (valid >= kRows) {
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) copy16_async(target(row), from + row * kHeadDim, true);
  } else {
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) {
      const bool exists = first + row < valid;
      copy16_async(target(row), exists ? from + row * kHeadDim : source, exists);
    }
  }
}

}  // namespace attention
