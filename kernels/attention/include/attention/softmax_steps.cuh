// For comparing two softmaxes step by step: writes a stripe's scaled scores, weights, m and l.
//
// Only compiled into the variants of the problem `softmax_steps`; not optimized for speed.
#pragma once

#include <attention/fragment_softmax.cuh>
#include <attention/stripe.cuh>

namespace attention {

// Outputs of one head: scores and weights [S, S], m and l [S]; in base-2 units, as in the kernels.
struct Steps {
  float* scores;
  half* weights;
  float* m;
  float* l;

  __device__ __forceinline__ Steps of_head(int seq) const {
    const std::size_t rows = static_cast<std::size_t>(blockIdx.y) * seq;
    return {scores + rows * seq, weights + rows * seq, m + rows, l + rows};
  }
};

// Writes the valid part of a 16 × kKeys tile, as value(row, key), to `target` [S, S].
template <int kKeys, typename T, typename Value>
__device__ __forceinline__ void write_tile(T* target, int seq, int first_row, int first_key, Value value) {
  for (int i = threadIdx.x % kWarp; i < kMma * kKeys; i += kWarp) {
    const int row = first_row + i / kKeys;
    const int key = first_key + i % kKeys;
    if (row < seq && key < seq) target[static_cast<std::size_t>(row) * seq + key] = value(i / kKeys, i % kKeys);
  }
}

// A tile of scores in accumulators, through 16 rows of kPitch floats in shared memory.
template <int kPitch, int kPieces>
__device__ __forceinline__ void write_by_memory(const Steps& steps, int seq, int first_row, int first_key,
                                                const Accumulator (&c)[kPieces], float scale_log2e, float* buffer) {
  for (int j = 0; j < kPieces; ++j) {
    nvcuda::wmma::store_matrix_sync(buffer + j * kMma, c[j], kPitch, nvcuda::wmma::mem_row_major);
  }
  __syncwarp();  // the tile is complete
  write_tile<kPieces * kMma>(steps.scores, seq, first_row, first_key,
                             [&](int row, int key) { return buffer[row * kPitch + key] * scale_log2e; });
  __syncwarp();  // it has been read
}

// m and l of a stripe. A FragmentState must be passed after fragment_normaliser(), which completes its sums;
// a RowState has the sums of one side, which are added up here.
__device__ __forceinline__ void write_states(const Steps& steps, int seq, int lane, int first_row,
                                             const FragmentState& state) {
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + lane / 4 + h * 8;
    if (lane % 4 == 0 && row < seq) {
      steps.m[row] = state.row[h].m;
      steps.l[row] = state.row[h].l;
    }
  }
}

__device__ __forceinline__ void write_states(const Steps& steps, int seq, int lane, int first_row,
                                             const RowState& state) {
  const float sum = state.l + __shfl_xor_sync(kAllLanes, state.l, kMma);
  if (lane < kMma && first_row + lane < seq) {
    steps.m[first_row + lane] = state.m;
    steps.l[first_row + lane] = sum;
  }
}

}  // namespace attention
