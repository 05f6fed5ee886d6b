// The output stripe in accumulators, rescaled by rows although WMMA does not specify where rows are.
//
// Fragments of one type have the same element in the same slot. A column of 16 factors, loaded as an
// accumulator with column-major layout and stride 0 between columns, therefore has the factor of a slot's
// row in every slot.
#pragma once

#include <attention/stripe.cuh>

namespace attention {

__device__ __forceinline__ void clear_fragments(Accumulator (&o)[kOutPieces]) {
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) nvcuda::wmma::fill_fragment(o[j], 0.0f);
}

// Multiplies each row of the stripe by its factor, given by lane l for row l % 16. `factors` are 16 floats
// of this warp in shared memory, 32-byte aligned; the caller synchronizes the warp before they are written
// again.
__device__ __forceinline__ void scale_fragments(Accumulator (&o)[kOutPieces], float* factors, float factor) {
  const int lane = threadIdx.x % kWarp;
  if (lane < kMma) factors[lane] = factor;
  __syncwarp();  // factors are complete
  Accumulator f;
  nvcuda::wmma::load_matrix_sync(f, factors, 0, nvcuda::wmma::mem_col_major);
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
#pragma unroll
    for (int i = 0; i < f.num_elements; ++i) o[j].x[i] *= f.x[i];
  }
}

// Writes the stripe's first `valid` rows to global memory as halves, through a buffer of 16 rows of kPitch
// floats (at least 32), half of the columns at a time.
template <int kPitch>
__device__ __forceinline__ void store_fragments(half* target, const Accumulator (&o)[kOutPieces], float* buffer,
                                                int valid) {
  constexpr int kHalf = kHeadDim / 2;
  static_assert(kPitch >= kHalf, "half of the output's columns pass through the buffer at a time");
#pragma unroll
  for (int col = 0; col < kHeadDim; col += kHalf) {
    __syncwarp();  // the buffer has been read
#pragma unroll
    for (int j = 0; j < kHalf / kMma; ++j) {
      nvcuda::wmma::store_matrix_sync(buffer + j * kMma, o[col / kMma + j], kPitch, nvcuda::wmma::mem_row_major);
    }
    __syncwarp();  // it is complete
    store_stripe<kHalf>(target + col, buffer, kPitch, 1.0f, valid);
  }
}

}  // namespace attention
