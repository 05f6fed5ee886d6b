// A 16 × 16 piece of the fp32 output in shared memory, owned by one warp: cleared and rescaled with 16-byte
// accesses, accumulated in a fragment.
#pragma once

#include <attention/head.cuh>
#include <attention/wmma.cuh>

namespace attention {

// Multiplies row r of the piece by factors[r]. The owning warp must synchronize afterwards.
__device__ __forceinline__ void rescale_piece(float* piece, int stride, const float* factors) {
  constexpr int kQuads = kMma / 4;  // per row
#pragma unroll
  for (int i = threadIdx.x % kWarp; i < kMma * kQuads; i += kWarp) {
    const int row = i / kQuads;
    float4* at = reinterpret_cast<float4*>(piece + row * stride + i % kQuads * 4);
    const float f = factors[row];
    const float4 x = *at;
    *at = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
  }
}

// piece = piece + P · V for 16 rows of weights and kKeys keys: loaded into a fragment and stored back.
template <int kKeys>
__device__ __forceinline__ void accumulate_piece(float* piece, int stride, const half* weights, int weight_stride,
                                                 const half* values, int value_stride) {
  Accumulator o;
  nvcuda::wmma::load_matrix_sync(o, piece, stride, nvcuda::wmma::mem_row_major);
  multiply<kKeys>(o, weights, weight_stride, values, value_stride);
  nvcuda::wmma::store_matrix_sync(piece, o, stride, nvcuda::wmma::mem_row_major);
}

// Fills the piece with zeros.
__device__ __forceinline__ void clear_piece(float* piece, int stride) {
  constexpr int kQuads = kMma / 4;
#pragma unroll
  for (int i = threadIdx.x % kWarp; i < kMma * kQuads; i += kWarp) {
    *reinterpret_cast<float4*>(piece + i / kQuads * stride + i % kQuads * 4) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

}  // namespace attention
