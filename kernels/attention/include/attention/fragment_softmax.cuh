// The softmax step of a 16-row stripe on WMMA accumulators, in registers.
//
// In each 16 × 16 accumulator a lane has four slots of row g = lane / 4 and four of row g + 8 (see
// fragment.cuh); the four lanes of a quad share those rows. So a lane has two rows, a maximum takes two
// shuffles, and the sum is over the lane's own keys until fragment_normaliser().
#pragma once

#include <attention/fragment.cuh>
#include <attention/stripe.cuh>

namespace attention {

// The state of a lane's rows g and g + 8.
struct FragmentState {
  RowState row[2];
};

// Scores in accumulators → weights in the stripe's buffer (kPitch halves per row), visible to the warp on
// return. factor[h] is the factor of the lane's row h of the output.
template <int kKeys>
__device__ __forceinline__ void fragment_weights(FragmentState& state, float (&factor)[2], half* weights,
                                                 Accumulator (&c)[kKeys / kMma], float scale_log2e, int keys_left) {
  constexpr int kPitch = Stripe<kKeys>::kPitch;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kKeys / kMma; ++j) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) c[j].x[i] *= scale_log2e;
  }
  if (keys_left < kKeys) {  // only the last tile
#pragma unroll
    for (int j = 0; j < kKeys / kMma; ++j) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) c[j].x[i] = mask_tail(c[j].x[i], j * kMma + fragment_col(lane, i), keys_left);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top[2] = {kMasked, kMasked};  // two chains: latency is the limit
#pragma unroll
    for (int j = 0; j < kKeys / kMma; ++j) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        if (slot_half(i) == h) top[i % 2] = fmaxf(top[i % 2], c[j].x[i]);
      }
    }
    factor[h] = state.row[h].raise(warp_max<4>(fmaxf(top[0], top[1])));
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < kKeys / kMma; ++j) {
#pragma unroll
      for (int i = 0; i < kSlots; i += 2) {  // slots i and i + 1 are neighboring columns
        if (slot_half(i) != h) continue;
        const float left = state.row[h].weight(c[j].x[i]);
        const float right = state.row[h].weight(c[j].x[i + 1]);
        sum[0] += left;
        sum[1] += right;
        *reinterpret_cast<half2*>(weights + fragment_row(lane, i) * kPitch + j * kMma + fragment_col(lane, i)) =
            __floats2half2_rn(left, right);
      }
    }
    state.row[h].add(sum[0] + sum[1]);
  }
  __syncwarp();  // weights are complete
}

// Multiplies the output's rows by their factors.
__device__ __forceinline__ void scale_rows(Accumulator (&o)[kOutPieces], const float (&factor)[2]) {
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) o[j].x[i] *= factor[slot_half(i)];
  }
}

// The final factors of the output's rows. Afterwards the state has complete sums.
__device__ __forceinline__ void fragment_normaliser(FragmentState& state, float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.row[h].l = warp_sum<4>(state.row[h].l);
    factor[h] = state.row[h].normaliser();
  }
}

}  // namespace attention
