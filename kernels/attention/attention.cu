// attention: for each shape, the kernel measured fastest for it.
//
// The choice depends only on B, H, S and D and needs no GPU; whether rows are causal is an argument of the call. It is
// made by the number of blocks of each kernel's rows, relative to 132 SMs (H100, H200):
//
//   D   blocks of                                       kernel                                       measured at
//   64  at most 132 of 64 queries x 256 keys, S <= 512  two blocks of a cluster share the keys       1,8,256; 1,8,512
//   64  at most 132 of 128 x 512, S <= 1024             two share them, 128 queries                  1,8,1024
//   64  at most 132 of 128 queries                      two warpgroups share 64 rows' keys           1,8,2048
//   64  at most 132 of 256, or S >= 4096                a block for 256 queries                      1,8,4096; 4,16,4096
//   64  more, S < 4096                                  persistent blocks, tiles of 256              16,16,1024; 1,128,512
//   128 at most 132 of 64 x 256, S <= 512               two blocks of a cluster share the keys       1,8,512
//   128 at most 132 of 64                               two warpgroups share 64 rows' keys
//   128 more, fp16                                      persistent blocks, tiles of 192              4,16,4096
//   128 more, bf16                                      persistent, each takes the next tile of 192  4,32,4096, grouped
//
// Measurements and their machine: NOTES.md in this folder. bf16 (ELEMENT_BF16) and the log-sum-exp (WRITE_LSE) do not
// use clusters, which exchange halves and store only the output.
//
// Hopper only; other archs run mma_stripes.cu for all shapes.
//
// From: no design document.

#include <attention/warpgroups/launch.cuh>

#define WITH_CLUSTERS (!ELEMENT_BF16 && !WRITE_LSE)
#if WITH_CLUSTERS
#include <attention/clusters/launch.cuh>
#endif

namespace {

#if WRITE_LSE
float* lse_of(const flashcore::Args& a) { return static_cast<float*>(a.lse); }
#else
float* lse_of(const flashcore::Args&) { return nullptr; }
#endif

using warpgroups::Problem;

// Head dimension, keys, consumers, stages, producer, turns, overlap, lazy, joint, persistent, key groups.
using Rows256 = warpgroups::Config<64, 64, 4, 4, true, false, true, 2, false, 0, 1>;
using Walk256 = warpgroups::Config<64, 64, 4, 6, true, false, true, 2, true, 1, 1>;
using Rows128 = warpgroups::Config<64, 64, 4, 8, true, false, true, 2, false, 0, 2>;
using Tiles192 = warpgroups::Config<128, 64, 3, 4, true, false, true, 2, true, 1 + ELEMENT_BF16, 1>;
using Rows64 = warpgroups::Config<128, 64, 2, 4, true, false, true, 2, false, 0, 2>;
#if WITH_CLUSTERS
// Head dimension, row groups, key groups, chunk, chunks of a block, blocks of a cluster, overlap, turns.
using Keys512 = clusters::Config<64, 1, 1, 128, 2, 2, true, false>;
using Keys1024 = clusters::Config<64, 2, 1, 128, 4, 2, true, true>;
using WideKeys512 = clusters::Config<128, 1, 1, 64, 4, 2, true, false>;
#endif

}  // namespace

#define WARPGROUPS_KERNEL(name, C)                                                                                   \
  extern "C" __global__ void __launch_bounds__(C::kThreads, 1)                                                       \
      name(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                             \
           const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,                            \
           const __grid_constant__ Problem p) {                                                                      \
    warpgroups::forward<C>(p, q, k, v, out, lse, taken);                                                             \
  }

#if !WRITE_LSE  // with it no register is free, and persistent blocks are as fast
WARPGROUPS_KERNEL(attention_rows256_kernel, Rows256)
#endif
WARPGROUPS_KERNEL(attention_walk256_kernel, Walk256)
WARPGROUPS_KERNEL(attention_rows128_kernel, Rows128)
WARPGROUPS_KERNEL(attention_tiles192_kernel, Tiles192)
WARPGROUPS_KERNEL(attention_rows64_kernel, Rows64)

#if ELEMENT_BF16
extern "C" __global__ void attention_clear_kernel(unsigned* taken) {
  if (threadIdx.x == 0) *taken = 0;
}
#else
constexpr void (*attention_clear_kernel)(unsigned*) = nullptr;
#endif

#if WITH_CLUSTERS
#define CLUSTERS_KERNEL(name, C)                                                                                     \
  extern "C" __global__ void __launch_bounds__(C::kThreads, 1)                                                       \
      name(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                             \
           const __grid_constant__ CUtensorMap v, half* out,                                                         \
           const __grid_constant__ clusters::Strides strides, int seq, int ahead, int sharing, float scale) {        \
    clusters::forward<C>(q, k, v, out, strides, seq, ahead, sharing, scale);                                         \
  }

CLUSTERS_KERNEL(attention_keys512_kernel, Keys512)
CLUSTERS_KERNEL(attention_keys1024_kernel, Keys1024)
CLUSTERS_KERNEL(attention_wide_keys512_kernel, WideKeys512)
#endif

namespace {

enum class Choice { kKeys512, kKeys1024, kWideKeys512, kRows64, kRows128, kRows256, kWalk256, kTiles192 };

// Whether all blocks run at once, for this number of rows per block and blocks per row block.
bool at_once(const flashcore::Shape& s, int rows, int blocks) {
  return (s.S + rows - 1) / rows * blocks * s.B * s.H <= MULTIPROCESSORS;
}

Choice choose(const flashcore::Shape& s) {
#if WITH_CLUSTERS
  if (s.D == 64 && s.S <= Keys512::kMostKeys && at_once(s, 64, 2)) return Choice::kKeys512;
  if (s.D == 64 && s.S <= Keys1024::kMostKeys && at_once(s, 128, 2)) return Choice::kKeys1024;
  if (s.D == 128 && s.S <= WideKeys512::kMostKeys && at_once(s, 64, 2)) return Choice::kWideKeys512;
#endif
  if (s.D == 128) return at_once(s, 64, 1) ? Choice::kRows64 : Choice::kTiles192;
  if (at_once(s, 128, 1)) return Choice::kRows128;
  return !WRITE_LSE && (at_once(s, 256, 1) || s.S >= 4096) ? Choice::kRows256 : Choice::kWalk256;
}

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = warpgroups::refusal(s))) return p;
  constexpr const char* kClear = "attention_clear_kernel";
  switch (choose(s)) {
#if WITH_CLUSTERS
    case Choice::kKeys512: return clusters::add_forward<Keys512>(p, s, "attention_keys512_kernel");
    case Choice::kKeys1024: return clusters::add_forward<Keys1024>(p, s, "attention_keys1024_kernel");
    case Choice::kWideKeys512: return clusters::add_forward<WideKeys512>(p, s, "attention_wide_keys512_kernel");
#endif
    case Choice::kRows64: return warpgroups::add_forward<Rows64>(p, s, "attention_rows64_kernel", kClear);
    case Choice::kRows128: return warpgroups::add_forward<Rows128>(p, s, "attention_rows128_kernel", kClear);
#if !WRITE_LSE
    case Choice::kRows256: return warpgroups::add_forward<Rows256>(p, s, "attention_rows256_kernel", kClear);
#endif
    case Choice::kWalk256: return warpgroups::add_forward<Walk256>(p, s, "attention_walk256_kernel", kClear);
    default: return warpgroups::add_forward<Tiles192>(p, s, "attention_tiles192_kernel", kClear);
  }
}

template <typename C>
cudaError_t launch_rows(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                        warpgroups::Kernel kernel, void* workspace, cudaStream_t stream) {
  return warpgroups::launch_forward<C>(a, s, p, kernel, attention_clear_kernel, lse_of(a), workspace, stream);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  switch (choose(s)) {
#if WITH_CLUSTERS
    case Choice::kKeys512: return clusters::launch_forward<Keys512>(a, s, p, attention_keys512_kernel, stream);
    case Choice::kKeys1024: return clusters::launch_forward<Keys1024>(a, s, p, attention_keys1024_kernel, stream);
    case Choice::kWideKeys512:
      return clusters::launch_forward<WideKeys512>(a, s, p, attention_wide_keys512_kernel, stream);
#endif
    case Choice::kRows64: return launch_rows<Rows64>(a, s, p, attention_rows64_kernel, workspace, stream);
    case Choice::kRows128: return launch_rows<Rows128>(a, s, p, attention_rows128_kernel, workspace, stream);
#if !WRITE_LSE
    case Choice::kRows256: return launch_rows<Rows256>(a, s, p, attention_rows256_kernel, workspace, stream);
#endif
    case Choice::kWalk256: return launch_rows<Walk256>(a, s, p, attention_walk256_kernel, workspace, stream);
    default: return launch_rows<Tiles192>(a, s, p, attention_tiles192_kernel, workspace, stream);
  }
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
