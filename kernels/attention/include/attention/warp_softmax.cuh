// The softmax step with a whole warp per row of scores: a lane has every 32nd key.
//
// The same interface as scalar_softmax_step, so that two kernels can differ in only this call.
#pragma once

#include <attention/head.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>

namespace attention {

// Folds one row of raw products q·k into the row's state (the same in all lanes) and passes each weight to
// store(key, weight), 0 for keys past `keys_left`. Returns the factor for the row of O, in all lanes.
// `store` may overwrite the scores: the reductions order it after every read.
template <int kKeys, typename Store>
__device__ __forceinline__ float warp_softmax_step(RowState& state, const float* products, float scale_log2e,
                                                   int keys_left, Store store) {
  constexpr int kOfLane = (kKeys + kWarp - 1) / kWarp;
  const int lane = threadIdx.x % kWarp;
  float score[kOfLane];
  float tile_max = kMasked;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int key = lane + i * kWarp;
    const bool exists = kKeys % kWarp == 0 || key < kKeys;  // 48 keys: the second pass has 16 lanes
    score[i] = exists ? mask_tail(products[key] * scale_log2e, key, keys_left) : kMasked;
    tile_max = fmaxf(tile_max, score[i]);
  }
  const float factor = state.raise(warp_max(tile_max));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int key = lane + i * kWarp;
    const float p = state.weight(score[i]);
    sum += p;
    if (kKeys % kWarp == 0 || key < kKeys) store(key, p);
  }
  state.add(warp_sum(sum));
  return factor;
}

// The step for a block's tile of scores, each warp taking kRowsOfWarp neighboring rows: their weights as
// halves, and the factor of each row of the output. The block synchronizes before and after.
template <int kKeys, int kRowsOfWarp>
__device__ __forceinline__ void warp_softmax_rows(RowState (&state)[kRowsOfWarp], half* weights, int weight_stride,
                                                  float* factors, const float* scores, int score_stride,
                                                  float scale_log2e, int keys_left) {
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = warp * kRowsOfWarp + r;
    half* own = weights + row * weight_stride;
    const float factor =
        warp_softmax_step<kKeys>(state[r], scores + row * score_stride, scale_log2e, keys_left,
                                 [own](int j, float p) { own[j] = __float2half_rn(p); });
    if (lane == 0) factors[row] = factor;
  }
}

}  // namespace attention
