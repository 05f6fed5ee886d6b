// cp.async: copies from global to shared memory that bypass registers, asynchronously (sm_80+).
//
// A thread's copies form groups, closed by commit_copies(). wait_copies<n>() returns when all but the
// newest n groups of *this thread* have landed; a barrier after it makes them visible to the others.
//
// The pipelines here commit one group per turn of their loop, empty if nothing is left to fetch. So the
// group of tile t is always the t-th, one constant n fits every turn, and the last tiles are awaited like
// all others. (Design 000 commits only while there are tiles left, with the same constant: it computes its
// last tile before it has arrived.)
#pragma once

#include <attention/shared_memory.cuh>
#include <cuda_fp16.h>

#include <cstddef>

namespace attention {

// 16 bytes through L2 only (.cg); both addresses 16-byte aligned. Without `exists` nothing is read and the
// target is filled with zeros; the source must nevertheless be a valid address.
__device__ __forceinline__ void copy16_async(half* target, const half* source, bool exists) {
  const int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
               : "memory");
}

// The same for 4 bytes that are not aligned to 16: also through L1 (.ca), the only variant of that size.
__device__ __forceinline__ void copy4_async(float* target, const float* source, bool exists) {
  const int bytes = exists ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kNewest>
__device__ __forceinline__ void wait_copies() {
  static_assert(kNewest >= 0, "groups that may still be under way");
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

// load_rows of tile.cuh as asynchronous copies: rows [valid, kRows) are filled with zeros.
//
// A thread keeps its column and steps down the tile, so that both addresses advance by constants; and only
// a partial tile checks whether each row exists. Both save instructions of a loading warp, for which other
// warps wait.
template <int kRows, int kCols, int kStride, int kThreads>
__device__ __forceinline__ void load_rows_async(half* tile, const half* source, std::size_t source_stride, int valid) {
  static_assert(kCols % 8 == 0 && kStride % 8 == 0 && kStride >= kCols, "rows are moved 8 halves at a time");
  constexpr int kPieces = kCols / 8;            // per row
  constexpr int kStep = kThreads / kPieces;     // rows that all threads copy per step
  static_assert(kThreads % kPieces == 0 && kRows % kStep == 0, "each turn copies whole rows, and no turn is partial");
  const int row = threadIdx.x / kPieces;
  const int col = threadIdx.x % kPieces * 8;
  half* target = tile + row * kStride + col;
  const half* from = source + row * source_stride + col;
  if (valid >= kRows) {
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) copy16_async(target + i * kStride, from + i * source_stride, true);
  } else {
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const bool exists = row + i < valid;
      copy16_async(target + i * kStride, exists ? from + i * source_stride : source, exists);
    }
  }
}

}  // namespace attention
