// 16 × 16 tiles on the tensor cores through nvcuda::wmma: halves in, fp32 accumulators.
//
// The layout of a fragment is unspecified, so everything that needs rows (masking, softmax, rescaling) goes
// through shared memory. Pointers must be 32-byte aligned: with rows of 16·n bytes, tiles that start at
// multiples of 16 rows and 16 columns are.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

namespace attention {

constexpr int kMma = 16;  // every side of a WMMA tile

using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kMma, kMma, kMma, half, nvcuda::wmma::row_major>;
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kMma, kMma, kMma, half, nvcuda::wmma::row_major>;
using FragmentBt = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kMma, kMma, kMma, half, nvcuda::wmma::col_major>;
using Accumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kMma, kMma, kMma, float>;

// c += A · B with A 16 × kDepth and B kDepth × 16, both row-major (P · V).
template <int kDepth>
__device__ __forceinline__ void multiply(Accumulator& c, const half* a, int a_stride, const half* b, int b_stride) {
  static_assert(kDepth % kMma == 0, "the depth is walked in steps of 16");
#pragma unroll
  for (int k = 0; k < kDepth; k += kMma) {
    FragmentA fa;
    FragmentB fb;
    nvcuda::wmma::load_matrix_sync(fa, a + k, a_stride);
    nvcuda::wmma::load_matrix_sync(fb, b + k * b_stride, b_stride);
    nvcuda::wmma::mma_sync(c, fa, fb, c);
  }
}

// c += A · Bᵀ with A and B 16 × kDepth, both row-major (Q · Kᵀ). Read as column-major, a row-major B is its
// own transpose: no data moves.
template <int kDepth>
__device__ __forceinline__ void multiply_transposed(Accumulator& c, const half* a, int a_stride, const half* b,
                                                    int b_stride) {
  static_assert(kDepth % kMma == 0, "the depth is walked in steps of 16");
#pragma unroll
  for (int k = 0; k < kDepth; k += kMma) {
    FragmentA fa;
    FragmentBt fb;
    nvcuda::wmma::load_matrix_sync(fa, a + k, a_stride);
    nvcuda::wmma::load_matrix_sync(fb, b + k, b_stride);
    nvcuda::wmma::mma_sync(c, fa, fb, c);
  }
}

// Q · Kᵀ of a whole block: kRows × kKeys raw scores into `scores`, 16 × 16 tiles distributed over the warps.
// With fewer tiles than warps the last warps are idle.
template <int kRows, int kKeys, int kDepth, int kWarps>
__device__ __forceinline__ void score_tile(float* scores, int score_stride, const half* queries, const half* keys,
                                           int stride) {
  static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "whole WMMA tiles");
  constexpr int kAcross = kKeys / kMma;
  for (int tile = threadIdx.x / 32; tile < kRows / kMma * kAcross; tile += kWarps) {
    const int row = tile / kAcross * kMma;
    const int key = tile % kAcross * kMma;
    Accumulator c;
    nvcuda::wmma::fill_fragment(c, 0.0f);
    multiply_transposed<kDepth>(c, queries + row * stride, stride, keys + key * stride, stride);
    nvcuda::wmma::store_matrix_sync(scores + row * score_stride + key, c, score_stride, nvcuda::wmma::mem_row_major);
  }
}

}  // namespace attention
