// Conventions of all attention kernels: the head dimension, the memory layout of rows, and which shapes are
// supported.
//
// q, k, v and out are contiguous [B, H, S, D] halves. A block works on one (batch, head) pair, given by
// blockIdx.y, so a kernel handles plain [S, D] matrices once it has added head_offset().
#pragma once

#include <cuda_fp16.h>
#include <flashcore/problem.h>

#include <cstddef>
#include <cstdint>

namespace attention {

constexpr int kHeadDim = 64;
constexpr int kWarp = 32;

// Padding of each row of a half tile in shared memory. 8 halves are 16 bytes: rows stay aligned for 16-byte
// accesses, and consecutive rows start 4 banks apart, so eight rows read at one column, 16 bytes each (as
// ldmatrix and WMMA loads do), touch all 32 banks once.
constexpr int kPad = 8;

// The same for a float tile: 4 floats are 16 bytes too.
constexpr int kPadFloat = 4;

// Distance between rows of a padded tile: in halves for Q, K and V, in floats for the output.
constexpr int kStride = kHeadDim + kPad;
constexpr int kOutStride = kHeadDim + kPadFloat;

// First element of this block's head.
__device__ __forceinline__ std::size_t head_offset(int seq) {
  return static_cast<std::size_t>(blockIdx.y) * seq * kHeadDim;
}

// The reason why a shape is not supported, or nullptr. Every plan() calls this first. Rows are int, with
// headroom for rounding up to a tile; (batch, head) is the grid's y, at most 65,535.
inline const char* refusal(const flashcore::Shape& s) {
  if (s.D != kHeadDim) return "expected head dimension D = 64; this variant is compiled for it alone";
  if (s.S < 1 || s.S > (1 << 24)) return "expected a sequence length S from 1 to 16,777,216";
  if (s.B < 1 || s.H < 1 || s.B > 65535 || s.B * s.H > 65535) {
    return "expected 1 to 65,535 (batch, head) pairs: B * H is the grid's second dimension";
  }
  return nullptr;
}

// The grid of a kernel whose blocks each take `rows` query rows of one head.
inline dim3 query_grid(const flashcore::Shape& s, int rows) {
  return dim3(flashcore::ceil_div(s.S, rows), static_cast<unsigned>(s.B * s.H), 1);
}

}  // namespace attention
