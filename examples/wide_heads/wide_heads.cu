// Attention forward with a head dimension of 256: the warpgroups of kernels/attention_general, with tiles that fit.
//
// 64 rows of O take 128 registers per thread, so a block has two computing warpgroups. For 128 rows Q takes 64 KB of
// shared memory, and two tiles of 80 keys 160 KB: K and V of one are multiplied while the next arrives.
//
// In small grids the warpgroups share 64 rows and each has every second tile of keys: twice as many blocks, half as long.
// Parts of O take 66 KB then, which leaves tiles of 32 keys, two for each warpgroup.
//
//   DIVIDE  causal: groups of as many heads as divide all heads, so that no small group starts its long rows last
//   SHARE   warpgroups share rows if all blocks of 64 rows run at once, or long causal ones in two rounds
//
// From: no design document.

#include <attention/warpgroups/between.cuh>

#include <flashcore/launch_by.h>

#include "products.cuh"

namespace {

using warpgroups::Problem;

// What the warpgroups expect of a Config, whose head dimensions end at 128.
template <int kKeys_, int kStages_, int kKeyGroups_>
struct Wide {
  static constexpr int kHeadDim = 256;
  static constexpr int kKeys = kKeys_;
  static constexpr int kConsumers = 2;
  static constexpr int kStages = kStages_;
  static constexpr bool kProducer = true;
  static constexpr bool kPingPong = false;
  static constexpr bool kOverlap = true;
  static constexpr int kLazy = 2;
  static constexpr bool kJoint = false;
  static constexpr int kPersistent = 0;
  static constexpr int kKeyGroups = kKeyGroups_;

  static constexpr int kRowsOfConsumer = 64;
  static constexpr int kRowGroups = kConsumers / kKeyGroups;
  static constexpr int kRows = kRowGroups * kRowsOfConsumer;
  static constexpr bool kMayIdle = false;
  static constexpr int kThreads = (kConsumers + 1) * 128;
  static constexpr int kPanels = kHeadDim / hopper::kPanelColumns;
  static constexpr int kSteps = kHeadDim / 16;

  // Each thread starts with 168, and the producer gives up most of them.
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr int kQPanelBytes = kRowsOfConsumer * hopper::kPanelRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;
  static constexpr int kPanelBytes = kKeys * hopper::kPanelRowBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kKeysAt = kRowGroups * kQBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kPartBytes = 128 * (kHeadDim / 2 + 4) * 4;
  static constexpr int kPartsAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kBarriersAt = kPartsAt + (kKeyGroups - 1) * kRowGroups * kPartBytes;
  static constexpr int kPositionsAt = kBarriersAt + (4 * kStages + 2 * kRowGroups + 4) * 8;
  static constexpr int kSharedBytes = kPositionsAt + 8;

  static constexpr int kScores = kKeys / 2;
  static constexpr int kOutputs = kHeadDim / 2;

  static_assert(kPanelBytes % hopper::kPanelGroupBytes == 0, "panels are aligned to eight rows");
  static_assert(kSharedBytes <= 227 * 1024, "too many stages");
};

using Rows128 = Wide<80, 2, 1>;
#if SHARE
using Rows64 = Wide<32, 4, 2>;
#endif

// As even_order, with groups of equal size where one of at least half as many heads divides all heads.
template <typename C>
warpgroups::Order divided_order(const flashcore::Shape& s, bool causal) {
  warpgroups::Order order = warpgroups::even_order<C>(s, causal);
  for (int group = order.group; DIVIDE && 2 * group >= order.group; --group) {
    if (order.heads % group == 0) {
      order.group = group;
      break;
    }
  }
  return order;
}

}  // namespace

#define WIDE_KERNEL(name, C)                                                              \
  namespace warpgroups {                                                                  \
  template <>                                                                             \
  Order order_of<C>(const flashcore::Shape& s, bool causal) {                             \
    return divided_order<C>(s, causal);                                                   \
  }                                                                                       \
  }                                                                                       \
  extern "C" __global__ void __launch_bounds__(C::kThreads, 1)                            \
      name(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,  \
           const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken, \
           const __grid_constant__ Problem p) {                                           \
    warpgroups::forward<C>(p, q, k, v, out, lse, taken);                                  \
  }

WIDE_KERNEL(wide_rows128_kernel, Rows128)
#if SHARE
WIDE_KERNEL(wide_rows64_kernel, Rows64)
#endif

namespace {

#if SHARE
bool share(const flashcore::Shape& s, bool causal) {
  const std::int64_t blocks = (s.S + Rows64::kRows - 1) / Rows64::kRows * s.B * s.H;
  return blocks <= MULTIPROCESSORS * (causal && s.S > 1024 ? 2 : 1);
}
#endif

flashcore::Plan plan(const flashcore::Shape& s, std::int64_t causal) {
  flashcore::Plan p;
  flashcore::Shape narrow = s;
  narrow.D = 128;  // all other limits are those of narrow heads
  p.error = s.D == Rows128::kHeadDim ? warpgroups::refusal(narrow) : "expected head dimension D = 256";
  if (p.error) return p;
#if SHARE
  if (share(s, causal != 0)) return warpgroups::add_forward<Rows64>(p, s, "wide_rows64_kernel", nullptr);
#endif
  return warpgroups::add_forward<Rows128>(p, s, "wide_rows128_kernel", nullptr);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
#if SHARE
  if (share(s, a.causal != 0)) {
    return warpgroups::launch_forward<Rows64>(a, s, p, wide_rows64_kernel, nullptr, nullptr, workspace, stream);
  }
#endif
  return warpgroups::launch_forward<Rows128>(a, s, p, wide_rows128_kernel, nullptr, nullptr, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT_BY(plan, launch, causal)
