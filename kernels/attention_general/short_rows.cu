// Attention forward for short rows of many heads: several blocks per SM, so that one block's start, loads, softmax and
// end overlap another's products.
//
// A block has 64 rows, one computing warpgroup, and tiles of 64 keys. At D = 128 one tile at a time leaves room for
// three blocks.
//
//   PRODUCER  0: all in step, 5 blocks per SM at D = 64, 3 at D = 128
//             1: a second warpgroup requests tiles, and P·V overlaps the next softmax: 3 and 2 blocks
//
// See include/attention/warpgroups/several.cuh. From: no design document.

#include <attention/warpgroups/several.cuh>

namespace {

using D64 = warpgroups::Several<64, PRODUCER != 0, PRODUCER ? 3 : 5, 2>;
using D128 = warpgroups::Several<128, PRODUCER != 0, PRODUCER ? 2 : 3, PRODUCER ? 2 : 1>;

}  // namespace

using warpgroups::Problem;

extern "C" __global__ void __launch_bounds__(D64::kThreads, D64::kBlocks)
    short_d64_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                     const __grid_constant__ CUtensorMap v, void* out, float*, unsigned*,
                     const __grid_constant__ Problem p) {
  warpgroups::forward_of_several<D64>(p, q, k, v, out);
}

extern "C" __global__ void __launch_bounds__(D128::kThreads, D128::kBlocks)
    short_d128_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                      const __grid_constant__ CUtensorMap v, void* out, float*, unsigned*,
                      const __grid_constant__ Problem p) {
  warpgroups::forward_of_several<D128>(p, q, k, v, out);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = warpgroups::refusal(s))) return p;
  if (s.D == 64) return warpgroups::add_forward<D64>(p, s, "short_d64_kernel", nullptr);
  return warpgroups::add_forward<D128>(p, s, "short_d128_kernel", nullptr);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  if (s.D == 64) return warpgroups::launch_forward<D64>(a, s, p, short_d64_kernel, nullptr, nullptr, workspace, stream);
  return warpgroups::launch_forward<D128>(a, s, p, short_d128_kernel, nullptr, nullptr, workspace, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
