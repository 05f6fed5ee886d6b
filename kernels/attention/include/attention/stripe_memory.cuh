// Shared memory of a block whose warps own stripes of 16 query rows (see stripe.cuh): byte offsets of Q, the
// stages of K and of V, and the stripes' buffers for scores and weights. Other parts of a kernel (an output,
// factors) follow them.
#pragma once

#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>

namespace attention {

template <int kRows, int kKeys, int kStages>
struct StripeMemory {
  static constexpr int kStageBytes = kKeys * kStride * 2;  // per stage of K, or of V

  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
  static constexpr int kValuesAt = after(kKeysAt, kStages * kStageBytes);
  static constexpr int kWeightsAt = after(kValuesAt, kStages * kStageBytes);
  static constexpr int kEnd = after(kWeightsAt, kRows * Stripe<kKeys>::kPitch * 2);
};

}  // namespace attention
