// Attention forward for shapes between the tuned rows: the steps of warpgroups.cu with fewer rows per block, and causal
// rows that end together.
//
// Rows per block decide how full the last wave is: 192 rows at D = 128 leave a third of 132 SMs idle on 1,8,2048. Heads
// are in groups whose K and V fit into L2, and a group's long rows come first; a last group that is smaller starts its
// long rows when other blocks end. Here groups have equal numbers of heads.
//
//   KEYS        per tile: 64, or 128 with less shared memory for stages
//   FEWER_ROWS  64 rows fewer per block: 192 at D = 64, 128 at D = 128; with 128 keys from the next free tile, 128 at
//               both, since three warpgroups would spill
//   JOINT       K and V of a tile share one barrier
//   PERSISTENT  2: one block per SM, each takes the next free tile; 0: a block per tile
//   STAGES      tiles of keys in flight at D = 64
//
// See include/attention/warpgroups/config.cuh. From: no design document.

#include <attention/warpgroups/between.cuh>

namespace {

constexpr int kConsumers64 = KEYS == 128 && PERSISTENT == 2 ? 2 : 4 - FEWER_ROWS;
using D64 = warpgroups::Between<64, KEYS, kConsumers64, STAGES, JOINT != 0, PERSISTENT>;
using D128 = warpgroups::Between<128, KEYS, 3 - FEWER_ROWS, KEYS == 64 ? 4 : 2, JOINT != 0, PERSISTENT>;

}  // namespace

namespace warpgroups {
EVEN_ORDER(D64)
EVEN_ORDER(D128)
}  // namespace warpgroups

using warpgroups::Problem;

#if PERSISTENT == 2
extern "C" __global__ void clear_taken_kernel(unsigned* taken) {
  if (threadIdx.x == 0) *taken = 0;
}
#else
constexpr void (*clear_taken_kernel)(unsigned*) = nullptr;
#endif

extern "C" __global__ void __launch_bounds__(D64::kThreads, 1)
    between_d64_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                       const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,
                       const __grid_constant__ Problem p) {
  warpgroups::forward<D64>(p, q, k, v, out, lse, taken);
}

extern "C" __global__ void __launch_bounds__(D128::kThreads, 1)
    between_d128_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                        const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,
                        const __grid_constant__ Problem p) {
  warpgroups::forward<D128>(p, q, k, v, out, lse, taken);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = warpgroups::refusal(s))) return p;
  if (s.D == 64) return warpgroups::add_forward<D64>(p, s, "between_d64_kernel", "clear_taken_kernel");
  return warpgroups::add_forward<D128>(p, s, "between_d128_kernel", "clear_taken_kernel");
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  if (s.D == 64) {
    return warpgroups::launch_forward<D64>(a, s, p, between_d64_kernel, clear_taken_kernel, nullptr, workspace, stream);
  }
  return warpgroups::launch_forward<D128>(a, s, p, between_d128_kernel, clear_taken_kernel, nullptr, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
