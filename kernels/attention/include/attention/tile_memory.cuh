// Dynamic shared memory of a block that computes a tile at a time with everything stored completely: Q, K,
// V, scores, weights, output and a factor for each of its rows. Offsets are in bytes.
#pragma once

#include <attention/head.cuh>
#include <attention/shared_memory.cuh>

namespace attention {

template <int kRows, int kKeys>
struct TileMemory {
  static constexpr int kScoreStride = kKeys + kPadFloat;  // floats per row
  static constexpr int kWeightStride = kKeys + kPad;      // halves per row

  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
  static constexpr int kValuesAt = after(kKeysAt, kKeys * kStride * 2);
  static constexpr int kScoresAt = after(kValuesAt, kKeys * kStride * 2);
  static constexpr int kWeightsAt = after(kScoresAt, kRows * kScoreStride * 4);
  static constexpr int kOutputAt = after(kWeightsAt, kRows * kWeightStride * 2);
  static constexpr int kFactorsAt = after(kOutputAt, kRows * kOutStride * 4);
  static constexpr int kBytes = after(kFactorsAt, kRows * 4);
};

}  // namespace attention
