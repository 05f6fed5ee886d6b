// Stores a warp's 16 rows of O from the accumulators.
#pragma once

#include <attention/warpgroups/config.cuh>

namespace warpgroups {

using namespace hopper;

// `target`: the thread's first row, number `row` of `rows`; the other is 8 further. `stride`: elements between rows.
// Lanes of a quad exchange values, so that each stores 16 bytes of a row, and the quad 64.
template <typename C>
__device__ __forceinline__ void store_rows(uint16_t* target, long long stride, const float (&o)[C::kOutputs],
                                           const float (&inverse)[2], int row, int rows, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int block = 0; block < C::kHeadDim / 8; block += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = (block + j) * 4 + 2 * h;
        words[j] = pack(o[i] * inverse[h], o[i + 1] * inverse[h]);
      }
      transpose_quad(words, lane);
      if (row + 8 * h < rows) {
        *reinterpret_cast<uint4*>(target + h * 8 * stride + (block + lane % 4) * 8) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

}  // namespace warpgroups
