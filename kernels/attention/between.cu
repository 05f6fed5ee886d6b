// Attention forward for shapes between the tuned rows: the steps of warpgroups.cu with fewer rows per block, and causal
// rows that end together.
//
// Rows per block decide how full the last wave is: 192 rows at D = 128 leave a third of 132 SMs idle on 1,8,2048. Heads
// are in groups whose K and V fit into L2, and a group's long rows come first; a last group that is smaller starts its
// long rows when other blocks end. Here groups have equal numbers of heads.
//
//   KEYS        per tile: 64, or 128 with less shared memory for stages
//   FEWER_ROWS  64 rows fewer per block: 192 at D = 64, 128 at D = 128
//   JOINT       K and V of a tile share one barrier
//   PERSISTENT  2: one block per SM, each takes the next free tile; 0: a block per tile
//   STAGES      tiles of keys in flight at D = 64
//
// See include/attention/warpgroups/config.cuh. From: no design document.

#include <attention/warpgroups/launch.cuh>

namespace {

// With two consumers, the loop over tiles needs more registers for the producer than a plain grid's 24.
template <int kHeadDim, int kConsumers, int kStages>
struct Between : warpgroups::Config<kHeadDim, KEYS, kConsumers, kStages, true, false, true, 2, JOINT != 0, PERSISTENT, 1> {
  using Base = warpgroups::Config<kHeadDim, KEYS, kConsumers, kStages, true, false, true, 2, JOINT != 0, PERSISTENT, 1>;
  static constexpr int kProducerRegisters = kConsumers == 2 && PERSISTENT ? 40 : Base::kProducerRegisters;
  static constexpr int kConsumerRegisters =
      (Base::kAtStart * Base::kThreads - kProducerRegisters * 128) / (kConsumers * 128) / 8 * 8;
};
using D64 = Between<64, 4 - FEWER_ROWS, STAGES>;
using D128 = Between<128, 3 - FEWER_ROWS, KEYS == 64 ? 4 : 2>;

template <typename C>
warpgroups::Order even_order(const flashcore::Shape& s, bool causal) {
  const auto heads = static_cast<int>(s.B * s.H), row_tiles = static_cast<int>(flashcore::ceil_div(s.S, C::kRows));
  const std::int64_t in_l2 = (24 << 20) / (4 * s.S * s.D * s.HKV / s.H);
  const int most = causal ? static_cast<int>(std::min<std::int64_t>(heads, std::max<std::int64_t>(1, in_l2))) : 1;
  const int groups = (heads + most - 1) / most;
  return {row_tiles, heads, (heads + groups - 1) / groups, row_tiles * heads};
}

}  // namespace

namespace warpgroups {
template <>
Order order_of<D64>(const flashcore::Shape& s, bool causal) {
  return even_order<D64>(s, causal);
}
template <>
Order order_of<D128>(const flashcore::Shape& s, bool causal) {
  return even_order<D128>(s, causal);
}
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
