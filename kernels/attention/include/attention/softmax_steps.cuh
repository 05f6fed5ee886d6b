// For comparing two softmaxes step by step: scaled scores, weights, m and l of a stripe, written out.
//
// Compiled into the variants of the problem `softmax_steps` alone; nothing here is meant to be fast.
#pragma once

#include <attention/stripe.cuh>

namespace attention {

// Outputs of one head: scores and weights [S, S], m and l [S]; in base-2 units, as the kernels hold them.
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

// The part of a 16 × kKeys tile that exists, as value(row, key), to `target` [S, S].
template <int kKeys, typename T, typename Value>
__device__ __forceinline__ void write_tile(T* target, int seq, int first_row, int first_key, Value value) {
  for (int i = threadIdx.x % kWarp; i < kMma * kKeys; i += kWarp) {
    const int row = first_row + i / kKeys;
    const int key = first_key + i % kKeys;
    if (row < seq && key < seq) target[static_cast<std::size_t>(row) * seq + key] = value(i / kKeys, i % kKeys);
  }
}

}  // namespace attention
