// mma_stripes: the start of the ladder to Hopper's fastest kernel, and the kernel of all other archs.
//
// Products by mma.sync, two stages of 64 keys by cp.async, everything else in registers, like FlashAttention-2. D = 64
// and 128, causal or not, query heads that share K and V, fp16 or bf16; sm_80 and newer.
//
// From: no design document.

#include <attention/stripes/launch.cuh>

namespace {

// 128 rows per block. Registers of a warp fit one stripe of O at D = 128, two at D = 64, which halves reads of K and V.
using D64 = stripes::Config<64, 4, 2>;
using D128 = stripes::Config<128, 8, 1>;

}  // namespace

extern "C" __global__ void __launch_bounds__(D64::kThreads)
    mma_stripes_d64_kernel(const __grid_constant__ stripes::Problem p, const uint16_t* __restrict__ q,
                           const uint16_t* __restrict__ k, const uint16_t* __restrict__ v, uint16_t* __restrict__ out,
                           float* __restrict__ lse) {
  stripes::forward<D64>(p, q, k, v, out, lse);
}

extern "C" __global__ void __launch_bounds__(D128::kThreads)
    mma_stripes_d128_kernel(const __grid_constant__ stripes::Problem p, const uint16_t* __restrict__ q,
                            const uint16_t* __restrict__ k, const uint16_t* __restrict__ v,
                            uint16_t* __restrict__ out, float* __restrict__ lse) {
  stripes::forward<D128>(p, q, k, v, out, lse);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = stripes::refusal(s))) return p;
  if (s.D == 64) return stripes::add_forward<D64>(p, s, "mma_stripes_d64_kernel");
  return stripes::add_forward<D128>(p, s, "mma_stripes_d128_kernel");
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return stripes::launch_forward(a, s, p, s.D == 64 ? mma_stripes_d64_kernel : mma_stripes_d128_kernel, nullptr, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
