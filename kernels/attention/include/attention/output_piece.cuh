// A 16 × 16 piece of the fp32 output in shared memory, owned by one warp, in 16-byte accesses.
#pragma once

#include <attention/head.cuh>
#include <attention/wmma.cuh>

namespace attention {

// Multiplies row r of the piece by factors[r]. The warp that owns the piece synchronises after it.
__device__ __forceinline__ void rescale_piece(float* piece, int stride, const float* factors) {
  constexpr int kQuads = kMma / 4;  // of a row
#pragma unroll
  for (int i = threadIdx.x % kWarp; i < kMma * kQuads; i += kWarp) {
    const int row = i / kQuads;
    float4* at = reinterpret_cast<float4*>(piece + row * stride + i % kQuads * 4);
    const float f = factors[row];
    const float4 x = *at;
    *at = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
  }
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
