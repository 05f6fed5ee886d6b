// tma_wgmma: both products with Hopper's wgmma; Q, K and V loaded by bulk tensor copies.
//
// A block has two or three warpgroups with 64 query rows each, which keep their scores, weights and part of O in
// registers; P·V takes the weights from there. Q, K and V are in shared memory in the copies' layout, panels of 64
// columns with the 128-byte swizzle. K and V come in tiles of 128 keys, with two tiles in flight. All warpgroups run in
// step, and one thread requests tiles.
//
// From: no design document.

#include <attention/warpgroups/in_step.cuh>
#include <attention/warpgroups/launch.cuh>

namespace {

using namespace warpgroups;

// Head dimension, keys, consumers, stages; no producer, turns, overlap, laziness, joint barriers, persistence; one key group.
using D64 = Config<64, 128, 3, 2, false, false, false, 0, false, 0, 1>;
using D128 = Config<128, 128, 2, 2, false, false, false, 0, false, 0, 1>;

}  // namespace

extern "C" __global__ void __launch_bounds__(D64::kThreads, 1)
    tma_wgmma_d64_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                         const __grid_constant__ CUtensorMap v, void* out, float*, unsigned*,
                         const __grid_constant__ Problem p) {
  forward_in_step<D64>(p, q, k, v, static_cast<uint16_t*>(out));
}

extern "C" __global__ void __launch_bounds__(D128::kThreads, 1)
    tma_wgmma_d128_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                          const __grid_constant__ CUtensorMap v, void* out, float*, unsigned*,
                          const __grid_constant__ Problem p) {
  forward_in_step<D128>(p, q, k, v, static_cast<uint16_t*>(out));
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  if (s.D == 64) return add_forward<D64>(p, s, "tma_wgmma_d64_kernel", nullptr);
  return add_forward<D128>(p, s, "tma_wgmma_d128_kernel", nullptr);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  if (s.D == 64) return launch_forward<D64>(a, s, p, tma_wgmma_d64_kernel, nullptr, nullptr, workspace, stream);
  return launch_forward<D128>(a, s, p, tma_wgmma_d128_kernel, nullptr, nullptr, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
