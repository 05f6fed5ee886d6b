// Attention forward with Hopper's wgmma: long sequences, D = 64 and 128, causal or not, query heads that share K and V,
// fp16 or bf16.
//
// A block has 2 to 4 warpgroups with 64 query rows each, which keep their scores, weights and part of O in registers;
// only Q, K and V are in shared memory, loaded by bulk tensor copies, K and V through a ring of stages. One more
// warpgroup requests tiles and gives its registers to the others (not in tma_wgmma.cu). Each switch is a separate
// technique, and each step of the ladder turns one on:
//
//   LAZY         how rarely a row's maximum is raised: 0, 1, 2
//   PINGPONG     warpgroups issue their products in turn
//   OVERLAP      P·V of one tile overlaps the softmax of the next
//   SMALL_TILES  64 keys per tile and one more warpgroup: 256 rows per block at D = 64, 192 at D = 128
//   JOINT        K and V of a tile share one barrier
//   PERSISTENT   one block per SM: 1: tiles in a fixed order, 2: each takes the next free one
//   KEY_GROUPS   warpgroups that share 64 rows and split their keys
//   STAGES       tiles of keys in flight at D = 64
//
// See include/attention/warpgroups/config.cuh for details. Keys are processed from first to last, so that every row has
// a finite maximum after its first tile, and tiles that need a mask (the diagonal, the end) come last.
//
// From: no design document.

#include <attention/warpgroups/launch.cuh>

namespace {

using namespace warpgroups;

static_assert(PINGPONG == 0 || PINGPONG == 1, "PINGPONG: 0 or 1");
static_assert(OVERLAP == 0 || OVERLAP == 1, "OVERLAP: 0 or 1");
static_assert(SMALL_TILES == 0 || SMALL_TILES == 1, "SMALL_TILES: 0 or 1");
static_assert(LAZY >= 0 && LAZY <= 2, "LAZY: 0, 1 or 2");
static_assert(JOINT == 0 || JOINT == 1, "JOINT: 0 or 1");
static_assert(PERSISTENT >= 0 && PERSISTENT <= 2, "PERSISTENT: 0, 1 or 2");
static_assert(KEY_GROUPS == 1 || KEY_GROUPS == 2 || KEY_GROUPS == 4, "KEY_GROUPS: 1, 2 or 4");
static_assert(KEY_GROUPS == 1 || SMALL_TILES, "key groups take small tiles");

// At D = 64 three warpgroups have 160 registers per thread each, for 64 x 128 scores, their weights and 64 x 64 of O;
// four have 112, for 64 x 64. At D = 128 O is twice as large, so there is one warpgroup less.
template <int kHeadDim>
struct Rung {
  static constexpr bool kSmallHead = kHeadDim == 64;
  static constexpr int kKeys = SMALL_TILES ? 64 : 128;
  static constexpr int kConsumers = kSmallHead ? 3 + SMALL_TILES : KEY_GROUPS > 1 ? 2 : 2 + SMALL_TILES;
  static constexpr int kKeyGroups = kSmallHead || KEY_GROUPS == 1 ? KEY_GROUPS : 2;
  static constexpr int kStages = kSmallHead ? STAGES : SMALL_TILES ? 4 : 2;  // limited by shared memory at D = 128
  using Type = Config<kHeadDim, kKeys, kConsumers, kStages, true, PINGPONG != 0, OVERLAP != 0, LAZY,
                      JOINT != 0, PERSISTENT, kKeyGroups>;
};
using D64 = Rung<64>::Type;
using D128 = Rung<128>::Type;

}  // namespace

#if PERSISTENT == 2
extern "C" __global__ void clear_taken_kernel(unsigned* taken) {
  if (threadIdx.x == 0) *taken = 0;
}
#else
constexpr void (*clear_taken_kernel)(unsigned*) = nullptr;
#endif

extern "C" __global__ void __launch_bounds__(D64::kThreads, 1)
    warpgroups_d64_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                          const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,
                          const __grid_constant__ Problem p) {
  forward<D64>(p, q, k, v, out, lse, taken);
}

extern "C" __global__ void __launch_bounds__(D128::kThreads, 1)
    warpgroups_d128_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                           const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,
                           const __grid_constant__ Problem p) {
  forward<D128>(p, q, k, v, out, lse, taken);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  if (s.D == 64) return add_forward<D64>(p, s, "warpgroups_d64_kernel", "clear_taken_kernel");
  return add_forward<D128>(p, s, "warpgroups_d128_kernel", "clear_taken_kernel");
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
#if WRITE_LSE
  float* lse = static_cast<float*>(a.lse);
#else
  float* lse = nullptr;
#endif
  if (s.D == 64) return launch_forward<D64>(a, s, p, warpgroups_d64_kernel, clear_taken_kernel, lse, workspace, stream);
  return launch_forward<D128>(a, s, p, warpgroups_d128_kernel, clear_taken_kernel, lse, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
