// The arithmetic of the online softmax, in base 2.
//
// exp(x) is exp2(x · log2 e) in hardware anyway, so log2 e is folded into the softmax scale on the host and
// scores are in base-2 units throughout: score = q·k · scale · log2 e, weight = exp2(score − m).
//
// The state of a row is (m, l, O): the largest score so far, the sum of weights and the weighted sum of V,
// both relative to m. A new tile of scores updates the state:
//
//   m' = max(m, max score)      a = exp2(m − m')      p = exp2(score − m')
//   l' = l·a + Σ p              O' = O·a + Σ p·v      and at the end the answer is O / l.
//
// −inf stands for "no key": a masked score, and m before the first key. Since (−inf) − (−inf) is NaN,
// finite_shift(m) is subtracted instead of m: before any key, a and p become exp2(−inf − 0) = 0, as
// required.
#pragma once

namespace attention {

constexpr double kLog2E = 1.4426950408889634;
constexpr float kMasked = -__builtin_huge_valf();  // the score of a masked key

// Host: the factor of the scores.
inline float exp2_scale(double scale) { return static_cast<float>(scale * kLog2E); }

// The score of a key, or "no key" past the end. `keys_left` counts from the tile's first key.
__device__ __forceinline__ float mask_tail(float score, int key_in_tile, int keys_left) {
  return key_in_tile < keys_left ? score : kMasked;
}

// The value to subtract from scores: m, or 0 before any key.
__device__ __forceinline__ float finite_shift(float m) { return m == kMasked ? 0.0f : m; }

// 2^x on the special-function unit; exp2f becomes ex2.approx only with --use_fast_math, this always is.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The largest score and the sum of weights of one query row.
struct RowState {
  float m = kMasked;
  float l = 0.0f;

  // Updates the maximum with a tile's largest score; returns the factor `a` for O. The weights of the tile are
  // then weight(score), and their sum must be passed to add().
  __device__ __forceinline__ float raise(float tile_max) {
    const float raised = fmaxf(m, tile_max);
    const float a = fast_exp2(m - finite_shift(raised));
    m = raised;
    l *= a;
    return a;
  }
  __device__ __forceinline__ float weight(float score) const { return fast_exp2(score - finite_shift(m)); }
  __device__ __forceinline__ void add(float weights) { l += weights; }

  // The final factor of O; 0 for a row without keys.
  __device__ __forceinline__ float normaliser() const { return l > 0.0f ? __frcp_rn(l) : 0.0f; }
};

}  // namespace attention
