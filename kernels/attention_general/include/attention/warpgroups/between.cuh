// Kernels for shapes between the tuned rows: fewer rows per block, and causal rows that end together.
#pragma once

#include <attention/warpgroups/launch.cuh>

namespace warpgroups {

// With two consumers, the loop over tiles needs more registers for the producer than a plain grid's 24.
template <int kHeadDim, int kKeys, int kConsumers, int kStages, bool kJoint, int kPersistent>
struct Between : Config<kHeadDim, kKeys, kConsumers, kStages, true, false, true, 2, kJoint, kPersistent, 1> {
  using Base = Config<kHeadDim, kKeys, kConsumers, kStages, true, false, true, 2, kJoint, kPersistent, 1>;
  static constexpr int kProducerRegisters = kConsumers == 2 && kPersistent ? 40 : Base::kProducerRegisters;
  static constexpr int kConsumerRegisters =
      (Base::kAtStart * Base::kThreads - kProducerRegisters * 128) / (kConsumers * 128) / 8 * 8;
};

// As order_of, but groups have equal numbers of heads: a smaller last group starts its long rows when others end.
template <typename C>
Order even_order(const flashcore::Shape& s, bool causal) {
  const auto heads = static_cast<int>(s.B * s.H), row_tiles = static_cast<int>(flashcore::ceil_div(s.S, C::kRows));
  const std::int64_t in_l2 = (24 << 20) / (4 * s.S * s.D * s.HKV / s.H);
  const int most = causal ? static_cast<int>(std::min<std::int64_t>(heads, std::max<std::int64_t>(1, in_l2))) : 1;
  const int groups = (heads + most - 1) / most;
  return {row_tiles, heads, (heads + groups - 1) / groups, row_tiles * heads};
}

}  // namespace warpgroups

// For each Between, in namespace warpgroups, before it is launched.
#define EVEN_ORDER(C)                                                    \
  template <>                                                            \
  inline Order order_of<C>(const flashcore::Shape& s, bool causal) {     \
    return even_order<C>(s, causal);                                     \
  }
