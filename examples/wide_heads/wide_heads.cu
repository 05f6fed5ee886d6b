// Attention forward with a head dimension of 256: the warpgroups of kernels/attention, with tiles that fit.
//
// 64 rows of O take 128 registers per thread, so a block has two computing warpgroups. For 128 rows Q takes 64 KB of
// shared memory, and two tiles of 80 keys 160 KB: K and V of one are multiplied while the next arrives.
//
// If 64 rows per block still leave SMs idle, the warpgroups share 64 rows and each has every second tile of keys. Parts
// of O take 66 KB then, which leaves tiles of 32 keys, two for each warpgroup.
//
//   PERSISTENT  2: one block per SM, each takes the next free tile of 128 rows; 0: a block per tile
//   SHARE       how many blocks of 64 rows per SM may share rows; 0: none
//
// From: no design document.

#include <attention/warpgroups/between.cuh>

#include "products.cuh"

namespace {

using warpgroups::Problem;

// What the warpgroups expect of a Config, whose head dimensions end at 128.
template <int kKeys_, int kStages_, int kPersistent_, int kKeyGroups_>
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
  static constexpr int kPersistent = kPersistent_;
  static constexpr int kKeyGroups = kKeyGroups_;

  static constexpr int kRowsOfConsumer = 64;
  static constexpr int kRowGroups = kConsumers / kKeyGroups;
  static constexpr int kRows = kRowGroups * kRowsOfConsumer;
  static constexpr bool kMayIdle = false;
  static constexpr int kThreads = (kConsumers + 1) * 128;
  static constexpr int kPanels = kHeadDim / hopper::kPanelColumns;
  static constexpr int kSteps = kHeadDim / 16;

  // 504 for a thread of each warpgroup, 168 of them each at the start.
  static constexpr int kProducerRegisters = kPersistent ? 40 : 24;
  static constexpr int kConsumerRegisters = (504 - kProducerRegisters) / 2;

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

using Rows128 = Wide<80, 2, PERSISTENT, 1>;
#if SHARE
using Rows64 = Wide<32, 4, 0, 2>;
#endif

}  // namespace

namespace warpgroups {
EVEN_ORDER(Rows128)
#if SHARE
EVEN_ORDER(Rows64)
#endif
}  // namespace warpgroups

#define WIDE_KERNEL(name, C)                                                                               \
  extern "C" __global__ void __launch_bounds__(C::kThreads, 1)                                             \
      name(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                   \
           const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,                  \
           const __grid_constant__ Problem p) {                                                            \
    warpgroups::forward<C>(p, q, k, v, out, lse, taken);                                                   \
  }

WIDE_KERNEL(wide_rows128_kernel, Rows128)
#if SHARE
WIDE_KERNEL(wide_rows64_kernel, Rows64)
#endif

#if PERSISTENT == 2
extern "C" __global__ void clear_taken_kernel(unsigned* taken) {
  if (threadIdx.x == 0) *taken = 0;
}
#else
constexpr void (*clear_taken_kernel)(unsigned*) = nullptr;
#endif

namespace {

#if SHARE
// Whether there are at most SHARE blocks of 64 rows per SM.
bool share(const flashcore::Shape& s) {
  return (s.S + Rows64::kRows - 1) / Rows64::kRows * s.B * s.H <= SHARE * MULTIPROCESSORS;
}
#endif

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  flashcore::Shape narrow = s;
  narrow.D = 128;  // all other limits are those of narrow heads
  p.error = s.D == Rows128::kHeadDim ? warpgroups::refusal(narrow) : "expected head dimension D = 256";
  if (p.error) return p;
#if SHARE
  if (share(s)) return warpgroups::add_forward<Rows64>(p, s, "wide_rows64_kernel", nullptr);
#endif
  return warpgroups::add_forward<Rows128>(p, s, "wide_rows128_kernel", "clear_taken_kernel");
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
#if SHARE
  if (share(s)) {
    return warpgroups::launch_forward<Rows64>(a, s, p, wide_rows64_kernel, nullptr, nullptr, workspace, stream);
  }
#endif
  return warpgroups::launch_forward<Rows128>(a, s, p, wide_rows128_kernel, clear_taken_kernel, nullptr, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
