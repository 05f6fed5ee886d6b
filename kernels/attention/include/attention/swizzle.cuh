// Where the 16-byte pieces of a 64-half row lie in shared memory: padded, or swizzled.
//
// ldmatrix reads one column of pieces in eight rows at once. Rows of 64 halves are 128 bytes, all banks
// once, so unmended a column of pieces lies in the same four banks in every row: 8-way conflicts.
//
//   Padded    rows are 144 bytes: each starts four banks further on. It takes an eighth more memory.
//   Swizzled  rows are 128 bytes; piece p of row r lies in place p XOR (r mod 8). In eight rows a column
//             of pieces takes eight different places. Nothing is unused; WMMA's loads, which need a
//             constant leading dimension, cannot read it; ldmatrix can, as each lane gives an address.
//
// Design 000 writes d ^ ((n & 1) * 8), which tells only even from odd rows: 4-way conflicts remain.
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

// Rows [0, valid) of a row-major [*, 64] matrix by asynchronous copies of kThreads threads, of which
// this one is `thread`; rows [valid, kRows) are filled with zeros. `tile` is 128-byte aligned.
//
// A thread copies the same piece of every kThreads / 8-th row. A whole tile, which all but the last are,
// takes no test and next to no arithmetic: places repeat every 8 rows, so addresses differ by constants.
template <typename Layout, int kRows, int kThreads>
__device__ __forceinline__ void load_tile_async(half* tile, const half* source, int valid, int thread) {
  constexpr int kStep = kThreads / kPiecesOfRow;  // rows
  static_assert(kThreads % kPiecesOfRow == 0 && kRows % kStep == 0, "all threads copy equally many pieces");
  const int first = thread / kPiecesOfRow;
  const int piece = thread % kPiecesOfRow;
  const half* from = source + first * kHeadDim + piece * kPiece;
  const auto target = [&](int row) {  // of row first + row, `row` being known at compile time
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
