// Where the 16-byte pieces of a 64-half row lie in shared memory: padded, or swizzled.
//
// ldmatrix reads one column of pieces in eight rows at once. Rows of 64 halves are 128 bytes, all banks
// once, so unmended a column of pieces lies in the same four banks in every row: 8-way conflicts.
//
//   Padded    rows are 144 bytes: each starts four banks further on. An eighth of the memory is unused.
//   Swizzled  rows are 128 bytes; piece p of row r lies in place p XOR (r mod 8). In eight rows a column
//             of pieces takes eight different places. Nothing is unused; WMMA's loads, which need a
//             constant leading dimension, cannot read it, ldmatrix can, each lane giving an address.
//
// Design 000 writes d ^ ((n & 1) * 8), which tells only even from odd rows: 4-way conflicts remain.
#pragma once

#include <attention/async_copy.cuh>
#include <attention/head.cuh>

namespace attention {

constexpr int kPiece = 8;                         // halves in 16 bytes
constexpr int kPiecesOfRow = kHeadDim / kPiece;   // 8

struct Padded {
  static constexpr int kPitch = kHeadDim + kPad;  // halves from one row to the next
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
template <typename Layout, int kRows, int kThreads>
__device__ __forceinline__ void load_tile_async(half* tile, const half* source, int valid, int thread) {
  static_assert(kRows * kPiecesOfRow % kThreads == 0, "all threads copy equally many pieces");
#pragma unroll
  for (int n = 0; n < kRows * kPiecesOfRow / kThreads; ++n) {
    const int i = thread + n * kThreads;
    const int row = i / kPiecesOfRow;
    const int piece = i % kPiecesOfRow;
    const bool exists = row < valid;
    copy16_async(tile + Layout::at(row, piece), source + (exists ? row * kHeadDim : 0) + piece * kPiece, exists);
  }
}

}  // namespace attention
