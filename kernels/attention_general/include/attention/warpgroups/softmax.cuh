// The softmax of a tile in registers, with a running maximum that is raised as rarely as possible.
#pragma once

#include <attention/warpgroups/config.cuh>
#include <attention/hopper/exp2.cuh>
#include <attention/hopper/registers.cuh>
#include <math_constants.h>

namespace warpgroups {

using namespace hopper;

// A row's running maximum (scaled, base 2) and this lane's part of its sum; two rows per thread, g and g + 8.
struct Rows {
  float m[2], l[2];
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// Masks keys that a row does not see. `limit`: the last key it sees minus the tile's first and the lane's column.
template <typename C>
__device__ __forceinline__ void mask(float (&s)[C::kScores], const int (&limit)[2]) {
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    if (i / 4 * 8 + i % 2 > limit[i / 2 % 2]) s[i] = -CUDART_INF_F;
  }
}

template <typename C>
__device__ __forceinline__ void pack_weights(uint32_t (&w)[C::kScores / 2], const float (&s)[C::kScores]) {
#pragma unroll
  for (int i = 0; i < C::kScores / 2; ++i) w[i] = pack(s[2 * i], s[2 * i + 1]);
}

// The weight of accumulator i.
__device__ __forceinline__ float weight(int i, float score, float scale_log2e, const float (&less)[2]) {
  return exp2_unit(fmaf(score, scale_log2e, -less[i / 2 % 2]));
}

// The value to subtract from scaled scores: anything finite for a row that has seen no key. Only a later key group,
// whose first tile may be past the diagonal, has such rows.
template <typename C>
__device__ __forceinline__ float subtracted(float m) {
  return C::kKeyGroups > 1 && m == -CUDART_INF_F ? 0.0f : m;
}

// Scores become weights in place. Returns whether O must be multiplied by `factor` (uniform in the warp).
template <typename C, int kLazy>  // 0 or 1
__device__ __forceinline__ bool softmax(float (&s)[C::kScores], Rows& rows, float (&factor)[2], float scale_log2e) {
  float top[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
  for (int i = 4; i < C::kScores; ++i) top[i % 4] = fmaxf(top[i % 4], s[i]);
  bool rescale = true;
  float raised[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) raised[h] = quad_max(fmaxf(top[2 * h], top[2 * h + 1])) * scale_log2e;
  if (kLazy) rescale = __any_sync(kAllLanes, raised[0] > rows.m[0] + kSlack || raised[1] > rows.m[1] + kSlack);
  if (rescale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      raised[h] = fmaxf(rows.m[h], raised[h]);
      // A row of a later key group may see no key in its first tiles.
      const bool empty = C::kKeyGroups > 1 && raised[h] == -CUDART_INF_F;
      factor[h] = empty ? 1.0f : exp2_unit(rows.m[h] - raised[h]);
      rows.m[h] = raised[h];
      rows.l[h] *= factor[h];
    }
  }
  const float less[2] = {subtracted<C>(rows.m[0]), subtracted<C>(rows.m[1])};
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    s[i] = weight(i, s[i], scale_log2e, less);
    sum[i % 4] += s[i];
  }
  rows.l[0] += sum[0] + sum[1];
  rows.l[1] += sum[2] + sum[3];
  return rescale;
}

// Weights relative to the current maximum, in place, without computing a new one. Only if a weight may be too large for
// its type, `again` recomputes the scores, and all is done as above. Sums of positive numbers show that as well as a
// maximum would, and are needed anyway.
template <typename C, typename Again>
__device__ __forceinline__ bool softmax_assuming(float (&s)[C::kScores], Rows& rows, float (&factor)[2],
                                                 float scale_log2e, const Again& again) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < C::kScores; ++i) {
    s[i] = weight(i, s[i], scale_log2e, rows.m);
    sum[i % 4] += s[i];
  }
  const float sums[2] = {sum[0] + sum[1], sum[2] + sum[3]};
  if (__builtin_expect(__any_sync(kAllLanes, !(fmaxf(sums[0], sums[1]) < kLargestSum)), 0)) {
    again();
    softmax<C, 0>(s, rows, factor, scale_log2e);
    return true;
  }
  rows.l[0] += sums[0];
  rows.l[1] += sums[1];
  return false;
}

template <typename C>
__device__ __forceinline__ void rescale_output(float (&o)[C::kOutputs], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < C::kOutputs; ++i) o[i] *= factor[i / 2 % 2];
}

}  // namespace warpgroups
