// The two products of a tile.
#pragma once

#include <attention_long/config.cuh>

namespace attention_long {

using namespace hopper;

// S = Q · Kᵀ.
__device__ __forceinline__ void multiply_keys(float (&s)[kScores], uint32_t queries, uint32_t keys) {
  const uint64_t a = rows_descriptor(queries), b = rows_descriptor(keys);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int panel = step / 4, inside = step % 4 * 32;
    const uint64_t on_b = b + (panel * kPanelBytes + inside) / 16;
    Product<kKeys>::shared_by_columns(s, a + (panel * kQPanelBytes + inside) / 16, on_b, step > 0);
  }
}

// O += P · V.
__device__ __forceinline__ void multiply_values(float (&o)[kOutputs], const uint32_t (&w)[kScores / 2],
                                                uint32_t values) {
  const uint64_t b = columns_descriptor(values, kPanelBytes);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    Product<kHeadDim>::registers_by_rows(o, w[4 * step], w[4 * step + 1], w[4 * step + 2], w[4 * step + 3],
                                         b + step * 16 * kPanelRowBytes / 16, 1);
  }
}

}  // namespace attention_long
