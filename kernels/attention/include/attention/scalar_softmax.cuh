// The softmax step of the first fused kernels: one thread processes a whole row of scores.
//
// Simple but slow: a 32-row tile uses 32 threads of the block, while all others wait at
// the next barrier.
#pragma once

#include <attention/softmax.cuh>

namespace attention {

// Folds one row of raw products q·k into the row's state and passes each weight to store(key, weight), 0 for
// keys past `keys_left`. Returns the factor for the row of O. `store` may overwrite the scores: all of them
// are read before.
template <int kKeys, typename Store>
__device__ __forceinline__ float scalar_softmax_step(RowState& state, const float* products, float scale_log2e,
                                                     int keys_left, Store store) {
  float score[kKeys];
  float tile_max = kMasked;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    score[j] = mask_tail(products[j] * scale_log2e, j, keys_left);
    tile_max = fmaxf(tile_max, score[j]);
  }
  const float factor = state.raise(tile_max);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    const float p = state.weight(score[j]);
    sum += p;
    store(j, p);
  }
  state.add(sum);
  return factor;
}

}  // namespace attention
