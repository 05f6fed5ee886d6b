// A warp and its stripe of 16 query rows: scores, softmax and P·V without another warp.
//
// Since no row is shared between warps, all synchronization within a tile is __syncwarp().
//
// Lanes: lane l handles row l % 16 of the stripe, together with lane l ± 16 (its `side`): one has the first,
// the other the second half of each batch of scores. With a row pitch of 16 bytes more than a multiple of
// 32, eight lanes that read 16 bytes of eight rows touch all banks once; the maximum of a row takes a single
// shuffle, its sum one shuffle at the end.
//
// One buffer contains scores (fp32) and then weights (fp16). Scores take twice the bytes, so they pass
// through it in batches of about half the tile: stored from fragments, read into the lanes' registers.
#pragma once

#include <attention/half8.cuh>
#include <attention/head.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>
#include <attention/wmma.cuh>

namespace attention {

constexpr int kOutPieces = kHeadDim / kMma;  // 16 × 16 pieces across a stripe of the output

// The shared buffer of one stripe, for tiles of kKeys keys.
template <int kKeys>
struct Stripe {
  static constexpr int kPitch = kKeys + kPad;             // halves per row, as weights
  static constexpr int kScorePitch = kPitch / 2;          // floats per row, as scores: the same bytes
  static constexpr int kBatch = kKeys / 2 / kMma * kMma;  // keys whose scores fit such a row
  static constexpr int kBatches = kKeys / kBatch;
  static constexpr int kShare = kBatch / 2;               // keys of a batch per lane
  static constexpr int kElements = kMma * kPitch;         // halves in the buffer
  static_assert(kKeys % kMma == 0 && kKeys % kBatch == 0, "BLOCK_N: 32, 48, 64, 96 or 128");
  static_assert(kShare % 8 == 0 && kPitch % 8 == 0, "scores and weights are moved 16 bytes at a time");
};

// c = Q · Kᵀ, 16 × 16·kPieces, raw.
template <int kPieces>
__device__ __forceinline__ void stripe_scores(Accumulator (&c)[kPieces], const half* queries, const half* keys,
                                              int stride) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) nvcuda::wmma::fill_fragment(c[j], 0.0f);
#pragma unroll
  for (int k = 0; k < kHeadDim; k += kMma) {
    FragmentA a;
    nvcuda::wmma::load_matrix_sync(a, queries + k, stride);
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      FragmentBt b;
      nvcuda::wmma::load_matrix_sync(b, keys + j * kMma * stride + k, stride);
      nvcuda::wmma::mma_sync(c[j], a, b, c[j]);
    }
  }
}

// o += P · V for kKeys keys; the accumulator's type is float or, for an fp16 output, half.
template <int kKeys, typename Output>
__device__ __forceinline__ void stripe_values(Output (&o)[kOutPieces], const half* weights, int pitch,
                                              const half* values, int stride) {
#pragma unroll
  for (int k = 0; k < kKeys; k += kMma) {
    FragmentA a;
    nvcuda::wmma::load_matrix_sync(a, weights + k, pitch);
#pragma unroll
    for (int j = 0; j < kOutPieces; ++j) {
      FragmentB b;
      nvcuda::wmma::load_matrix_sync(b, values + k * stride + j * kMma, stride);
      nvcuda::wmma::mma_sync(o[j], a, b, o[j]);
    }
  }
}

// Folds a lane's scores (kCount of one row, in groups of 8 neighboring keys that start at a multiple of 8)
// into the state and passes weights, 8 keys at a time, to store(first key, Half8). key(i) is the key of
// score i. Returns the factor of the row's output. state.l is the sum over this lane's own keys only:
// stripe_normaliser() adds up the two sides.
template <int kCount, typename Key, typename Store>
__device__ __forceinline__ float stripe_softmax(RowState& state, float (&score)[kCount], int tile_keys, int keys_left,
                                                Key key, Store store) {
  static_assert(kCount % 8 == 0, "weights are stored 8 at a time");
  if (keys_left < tile_keys) {  // only the last tile, uniform in the warp
#pragma unroll
    for (int i = 0; i < kCount; ++i) score[i] = mask_tail(score[i], key(i), keys_left);
  }
  // Four chains instead of one: with one or two warps per scheduler, latency is the limit.
  float top[4] = {score[0], score[1], score[2], score[3]};
#pragma unroll
  for (int i = 4; i < kCount; ++i) top[i % 4] = fmaxf(top[i % 4], score[i]);
  const float mine = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
  const float factor = state.raise(fmaxf(mine, __shfl_xor_sync(kAllLanes, mine, kMma)));
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; i += 8) {
    float p[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      p[c] = state.weight(score[i + c]);
      sum[c % 4] += p[c];
    }
    store(key(i), to_half8(p));
  }
  state.add((sum[0] + sum[1]) + (sum[2] + sum[3]));
  return factor;
}

// Scores in fragments → weights in the stripe's buffer, through that same buffer. Returns the factor of row
// l % 16 of the output. The weights are visible to the warp on return.
template <int kKeys>
__device__ __forceinline__ float stripe_weights(RowState& state, half* buffer, Accumulator (&c)[kKeys / kMma],
                                                float scale_log2e, int keys_left) {
  using S = Stripe<kKeys>;
  const int lane = threadIdx.x % kWarp;
  const int row = lane % kMma;
  const int side = lane / kMma;
  float* scores = reinterpret_cast<float*>(buffer);
  float score[kKeys / 2];
#pragma unroll
  for (int b = 0; b < S::kBatches; ++b) {
#pragma unroll
    for (int j = 0; j < S::kBatch / kMma; ++j) {
      nvcuda::wmma::store_matrix_sync(scores + j * kMma, c[b * (S::kBatch / kMma) + j], S::kScorePitch,
                                      nvcuda::wmma::mem_row_major);
    }
    __syncwarp();  // the batch is complete
    const float* own = scores + row * S::kScorePitch + side * S::kShare;
#pragma unroll
    for (int i = 0; i < S::kShare; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(own + i);
      score[b * S::kShare + i] = x.x * scale_log2e;
      score[b * S::kShare + i + 1] = x.y * scale_log2e;
      score[b * S::kShare + i + 2] = x.z * scale_log2e;
      score[b * S::kShare + i + 3] = x.w * scale_log2e;
    }
    __syncwarp();  // it has been read: the buffer is free for the next batch, or for the weights
  }
  const auto key = [side](int i) { return i / S::kShare * S::kBatch + side * S::kShare + i % S::kShare; };
  const float factor =
      stripe_softmax(state, score, kKeys, keys_left, key, [buffer, row](int first, const Half8& p) {
        store_half8(buffer + row * S::kPitch + first, p);
      });
  __syncwarp();  // weights are complete
  return factor;
}

// The final factor of row l % 16 of the output. All lanes participate.
__device__ __forceinline__ float stripe_normaliser(RowState state) {
  state.l += __shfl_xor_sync(kAllLanes, state.l, kMma);
  return state.normaliser();
}

// --- the output stripe in shared memory, 16 rows of fp32 ------------------------------------------

// Lane l multiplies its half of row l % 16 by its own factor.
__device__ __forceinline__ void rescale_stripe(float* output, float factor) {
  const int lane = threadIdx.x % kWarp;
  float4* own = reinterpret_cast<float4*>(output + lane % kMma * kOutStride + lane / kMma * (kHeadDim / 2));
#pragma unroll
  for (int i = 0; i < kHeadDim / 8; ++i) {
    const float4 x = own[i];
    own[i] = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
  }
}

__device__ __forceinline__ void clear_stripe(float* output) {
  const int lane = threadIdx.x % kWarp;
  float4* own = reinterpret_cast<float4*>(output + lane % kMma * kOutStride + lane / kMma * (kHeadDim / 2));
#pragma unroll
  for (int i = 0; i < kHeadDim / 8; ++i) own[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// output = output + P · V: loaded into fragments and stored back. The warp synchronizes before and after.
template <int kKeys>
__device__ __forceinline__ void accumulate_stripe(float* output, const half* weights, const half* values, int stride) {
  Accumulator o[kOutPieces];
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
    nvcuda::wmma::load_matrix_sync(o[j], output + j * kMma, kOutStride, nvcuda::wmma::mem_row_major);
  }
  stripe_values<kKeys>(o, weights, Stripe<kKeys>::kPitch, values, stride);
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
    nvcuda::wmma::store_matrix_sync(output + j * kMma, o[j], kOutStride, nvcuda::wmma::mem_row_major);
  }
}

// Writes kCols columns of the stripe's first `valid` rows to global memory as halves, 16 bytes per lane.
// `factor` is the factor of the lane's own row (l % 16); each lane gets the one it needs by a shuffle.
template <int kCols>
__device__ __forceinline__ void store_stripe(half* target, const float* stripe, int pitch, float factor, int valid) {
  constexpr int kPieces = kCols / 8;  // per row
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = lane; i < kMma * kPieces; i += kWarp) {
    const int row = i / kPieces;
    const int col = i % kPieces * 8;
    const float f = __shfl_sync(kAllLanes, factor, row);
    if (row >= valid) continue;
    const float* from = stripe + row * pitch + col;
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    store_half8_global(target + row * kHeadDim + col, to_half8({low.x * f, low.y * f, low.z * f, low.w * f,
                                                                high.x * f, high.y * f, high.z * f, high.w * f}));
  }
}

}  // namespace attention
