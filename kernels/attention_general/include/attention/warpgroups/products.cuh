// The two products of a tile.
#pragma once

#include <attention/warpgroups/config.cuh>

namespace warpgroups {

using namespace hopper;

// S = Q · Kᵀ.
template <typename C>
__device__ __forceinline__ void multiply_keys(float (&s)[C::kScores], uint32_t queries, uint32_t keys) {
  const uint64_t a = rows_descriptor(queries), b = rows_descriptor(keys);
#pragma unroll
  for (int step = 0; step < C::kSteps; ++step) {
    const int panel = step / 4, inside = step % 4 * 32;
    const uint64_t on_b = b + (panel * C::kPanelBytes + inside) / 16;
    Product<C::kKeys>::shared_by_columns(s, a + (panel * C::kQPanelBytes + inside) / 16, on_b, step > 0);
  }
}

// O += P · V.
template <typename C>
__device__ __forceinline__ void multiply_values(float (&o)[C::kOutputs], const uint32_t (&w)[C::kScores / 2],
                                                uint32_t values) {
  const uint64_t b = columns_descriptor(values, C::kPanelBytes);
#pragma unroll
  for (int step = 0; step < C::kKeys / 16; ++step) {
    Product<C::kHeadDim>::registers_by_rows(o, w[4 * step], w[4 * step + 1], w[4 * step + 2], w[4 * step + 3],
                                         b + step * 16 * kPanelRowBytes / 16, 1);
  }
}

}  // namespace warpgroups
