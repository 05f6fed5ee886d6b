// attention: for each shape, causal or not, the kernel that choice.h names, by variant (in bf16 without its suffix).
//
// With the log-sum-exp (WRITE_LSE) only kernels that write it without spilling: persistent blocks and two key groups.
//
// Hopper only; other archs run mma_stripes.cu. From: no design document.

#include <attention/warpgroups/between.cuh>
#include <attention/warpgroups/several.cuh>
#if ELEMENT_BF16
#undef ELEMENT_BF16
#include <attention/clusters/bf16.cuh>
constexpr bool kHasKeyGroups4 = false;  // not among the variants in bf16
#else
#include <attention/clusters/launch.cuh>
constexpr bool kHasKeyGroups4 = true;
#endif
#include <attention/choice.h>
#include <flashcore/launch_by.h>

#include <array>

namespace {

using warpgroups::Between;
using warpgroups::Config;
using warpgroups::Several;
using Walk64 = Config<64, 64, 4, 6, true, false, true, 2, true, 1, 1>;
using Walk128 = Config<128, 64, 3, 4, true, false, true, 2, true, 1, 1>;
using Pairs64 = Config<64, 64, 4, 8, true, false, true, 2, false, 0, 2>;
using Pairs128 = Config<128, 64, 2, 4, true, false, true, 2, false, 0, 2>;
using Fours64 = Config<64, 64, 4, 8, true, false, true, 2, false, 0, 4>;
using Even64 = Between<64, 64, 4, 4, false, 0>;
using Even128 = Between<128, 64, 3, 4, false, 0>;
using EvenDynamic64 = Between<64, 64, 4, 6, true, 2>;
using EvenDynamic128 = Between<128, 64, 3, 4, true, 2>;
using Narrow64 = Between<64, 64, 3, 4, false, 0>;
using Narrow128 = Between<128, 64, 2, 4, false, 0>;
using NarrowDynamic64 = Between<64, 64, 3, 6, true, 2>;
using NarrowDynamic128 = Between<128, 64, 2, 4, true, 2>;
using Wide64 = Between<64, 128, 3, 4, false, 0>;
using Wide128 = Between<128, 128, 2, 2, false, 0>;
using WideDynamic64 = Between<64, 128, 2, 4, false, 2>;
using WideDynamic128 = Between<128, 128, 2, 2, false, 2>;
using InStep64 = Several<64, false, 5, 2>;
using InStep128 = Several<128, false, 3, 1>;
using Overlap64 = Several<64, true, 3, 2>;
using Overlap128 = Several<128, true, 2, 2>;
using Keys512 = clusters::Config<64, 1, 1, 128, 2, 2, true, false>;
using Keys1024 = clusters::Config<64, 2, 1, 128, 4, 2, true, true>;
using WideKeys512 = clusters::Config<128, 1, 1, 64, 4, 2, true, false>;

}  // namespace

// Variant, kernel, and configuration.
#define ALSO_LSE(X)                              \
  X("wgmma_persistent", walk64, Walk64)          \
  X("wgmma_persistent", walk128, Walk128)        \
  X("wgmma_key_groups_2", pairs64, Pairs64)      \
  X("wgmma_key_groups_2", pairs128, Pairs128)
#if WRITE_LSE
#define BETWEEN(X)
#define ONE_BLOCK(X) ALSO_LSE(X)
#define SEVERAL(X)
#define CLUSTERS(X)
#else
#define BETWEEN(X)                                               \
  X("between_even", even64, Even64)                              \
  X("between_even", even128, Even128)                            \
  X("between_even_dynamic", even_dynamic64, EvenDynamic64)       \
  X("between_even_dynamic", even_dynamic128, EvenDynamic128)     \
  X("between_narrow", narrow64, Narrow64)                        \
  X("between_narrow", narrow128, Narrow128)                      \
  X("between_narrow_dynamic", narrow_dynamic64, NarrowDynamic64) \
  X("between_narrow_dynamic", narrow_dynamic128, NarrowDynamic128) \
  X("between_wide", wide64, Wide64)                              \
  X("between_wide", wide128, Wide128)                            \
  X("between_wide_dynamic", wide_dynamic64, WideDynamic64)       \
  X("between_wide_dynamic", wide_dynamic128, WideDynamic128)
#define ONE_BLOCK(X)                             \
  BETWEEN(X)                                     \
  ALSO_LSE(X)                                    \
  X("wgmma_key_groups_4", fours64, Fours64)      \
  X("wgmma_key_groups_4", fours128, Pairs128)
#define SEVERAL(X)                               \
  X("short_in_step", in_step64, InStep64)        \
  X("short_in_step", in_step128, InStep128)      \
  X("short_overlap", overlap64, Overlap64)       \
  X("short_overlap", overlap128, Overlap128)
#define CLUSTERS(X)                              \
  X("cluster_keys", keys512, Keys512)            \
  X("cluster_rows", keys1024, Keys1024)          \
  X("cluster_wide_keys", wide_keys512, WideKeys512)
#endif
#define ROWS(X) ONE_BLOCK(X) SEVERAL(X)

namespace warpgroups {
#define SPECIALIZED(variant, kernel, C) EVEN_ORDER(C)
BETWEEN(SPECIALIZED)
}  // namespace warpgroups

#define KERNEL(kernel, C, blocks, forward)                                                                           \
  extern "C" __global__ void __launch_bounds__(C::kThreads, blocks)                                                  \
      mapped_##kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                  \
                      const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,                 \
                      const __grid_constant__ warpgroups::Problem p) {                                               \
    forward;                                                                                                         \
  }
#define ONE_KERNEL(variant, kernel, C) KERNEL(kernel, C, 1, warpgroups::forward<C>(p, q, k, v, out, lse, taken))
#define SEVERAL_KERNEL(variant, kernel, C) \
  KERNEL(kernel, C, C::kBlocks, warpgroups::forward_of_several<C>(p, q, k, v, out))
ONE_BLOCK(ONE_KERNEL)
SEVERAL(SEVERAL_KERNEL)

#define CLUSTER_KERNEL(variant, kernel, C)                                                                           \
  extern "C" __global__ void __launch_bounds__(C::kThreads, 1)                                                       \
      mapped_##kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                  \
                      const __grid_constant__ CUtensorMap v, half* out,                                              \
                      const __grid_constant__ clusters::Strides strides, int seq, int ahead, int sharing,            \
                      float scale) {                                                                                 \
    clusters::forward<C>(q, k, v, out, strides, seq, ahead, sharing, scale);                                         \
  }
CLUSTERS(CLUSTER_KERNEL)

#if WRITE_LSE
constexpr void (*mapped_clear)(unsigned*) = nullptr;  // no block takes tiles from a counter
#else
extern "C" __global__ void mapped_clear(unsigned* taken) {
  if (threadIdx.x == 0) *taken = 0;
}
#endif

namespace {

#if WRITE_LSE
// The one that is predicted to be faster without the log-sum-exp.
std::string_view choose_of_two(const flashcore::Shape& s, bool causal) {
  std::string_view choice;
  double least = 0;
  for (const Cost& cost : kCosts) {
    if (cost.variant != "wgmma_persistent" && cost.variant != "wgmma_key_groups_2") continue;
    const double us = predicted_us(cost, s, causal);
    if (choice.empty() || us < least) choice = cost.variant, least = us;
  }
  return choice;
}
#define LSE_OF(a) static_cast<float*>(a.lse)
#else
#define LSE_OF(a) nullptr
#endif

// The choice, kept for the next call: following the order of tiles takes up to a millisecond.
std::string_view choice_of(const flashcore::Shape& s, bool causal) {
  using Key = std::array<std::int64_t, 5>;
  thread_local Key last[2] = {};
  thread_local std::string_view choices[2];
  const Key key = {s.B, s.H, s.HKV, s.S, s.D};
  std::string_view& choice = choices[causal];
  if (last[causal] != key) {
#if WRITE_LSE
    choice = choose_of_two(s, causal);
#else
    choice = choose(s, causal, kHasKeyGroups4);
#endif
#define CLUSTER_REFUSES(variant, kernel, C) \
  if (choice == variant && clusters::refusal<C>(s)) choice = "wgmma_key_groups_2";
    CLUSTERS(CLUSTER_REFUSES)
    last[causal] = key;
  }
  return choice;
}

flashcore::Plan plan(const flashcore::Shape& s, std::int64_t causal) {
  flashcore::Plan p;
  if ((p.error = warpgroups::refusal(s))) return p;
#if !WRITE_LSE
  p.workspace_bytes = sizeof(unsigned);  // for kernels of either kind of rows
#endif
  const std::string_view choice = choice_of(s, causal != 0);
#define PLAN(variant, kernel, C)               \
  if (choice == variant && s.D == C::kHeadDim) \
    return warpgroups::add_forward<C>(p, s, "mapped_" #kernel, "mapped_clear");
  ROWS(PLAN)
#define CLUSTER_PLAN(variant, kernel, C) \
  if (choice == variant) return clusters::add_forward<C>(p, s, "mapped_" #kernel);
  CLUSTERS(CLUSTER_PLAN)
  p.error = "the map's choice is not among the kernels of this file";
  return p;
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  const std::string_view choice = choice_of(s, a.causal != 0);
#define LAUNCH(variant, kernel, C)             \
  if (choice == variant && s.D == C::kHeadDim) \
    return warpgroups::launch_forward<C>(a, s, p, mapped_##kernel, mapped_clear, LSE_OF(a), workspace, stream);
  ROWS(LAUNCH)
#define CLUSTER_LAUNCH(variant, kernel, C) \
  if (choice == variant) return clusters::launch_forward<C>(a, s, p, mapped_##kernel, stream);
  CLUSTERS(CLUSTER_LAUNCH)
  return cudaErrorInvalidValue;
}

}  // namespace

FLASHCORE_VARIANT_BY(plan, launch, causal)
