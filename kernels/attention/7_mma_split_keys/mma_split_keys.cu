// mma_split_keys: small blocks for small grids: 32 queries, and the keys split over the block's 8 warps.
//
// Compared with xor_swizzle: 64 rows per block are only 64 blocks at B·H = 8, S = 512, less than half of a large
// GPU, and each iterates over all keys. Here a block has 32 rows (128 blocks), and a warp computes all of
// them against its share of the keys: 64 of every 512. At S = 512 there is no loop left: all of K and V is
// requested at once, and there is a single wait for memory.
//
//   - Each warp stages its own keys in its own memory and waits only for its own copies. There are two
//     block-wide barriers, whatever S is: queries landed, and partial results complete.
//   - K and V have one buffer each. K's is refilled as soon as the scores are computed, during softmax and
//     P·V; V's during the next scores.
//   - A fragment of K or V serves two stripes of 16 rows: half the shared-memory reads per product.
//   - At the end each warp has (O, m, l) for its keys. O is written to the warp's K buffer, and all threads
//     merge the 8 parts, relative to the largest m, always in the same order: bit-equal answers.
//
// Sizes are macros (attention/split_keys_sizes.cuh); this text describes their defaults.
//
// The idea is split_keys', whose warps share the loads, a barrier per turn, and WMMA's way through shared
// memory; here warps are independent until the end.
//
// From: no design document; the next step for a grid of 64 blocks.

#include <attention/mma_stripe.cuh>
#include <attention/part.cuh>
#include <attention/shared_memory.cuh>
#include <attention/split_keys_sizes.cuh>

namespace {

using namespace attention;

using Layout = Swizzled;
constexpr int kStripes = STRIPES;
constexpr int kRows = kStripes * kMmaRows;
constexpr int kKeys = KEYS;
constexpr int kWarps = WARPS;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLoaders = kRows * 8 % kThreads == 0 ? kThreads : 128;  // threads that load the queries
constexpr int kPass = kWarps * kKeys;        // keys of the block per pass
constexpr int kTile = kKeys * kHeadDim;      // halves of a warp's K, or V
constexpr int kPart = kRows * kHeadDim * 4;  // bytes of a warp's part of O

static_assert(kKeys % 16 == 0, "KEYS: a multiple of 16");

// A warp's K and V are adjacent, so that its part of O may extend into V's buffer.
constexpr int kWarpBytes = 2 * kTile * 2;
static_assert(kPart <= kWarpBytes, "KEYS: as many as there are rows: a part of O lies in the warp's K and V");

constexpr int kQueriesAt = 0;
constexpr int kStatesAt = after(kQueriesAt, kRows * kHeadDim * 2);
constexpr int kTilesAt = after(kStatesAt, 2 * kWarps * kRows * 4);
constexpr int kSharedBytes = after(kTilesAt, kWarps * kWarpBytes);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    mma_split_keys_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e, unsigned flip) {
  // phase: load
  half* queries = shared_at<half>(kQueriesAt);
  float* maxima = shared_at<float>(kStatesAt);  // [warp][row]
  float* sums = maxima + kWarps * kRows;

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  half* keys = shared_at<half>(kTilesAt + warp * kWarpBytes);
  half* values = keys + kTile;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;

  // This warp's keys of a pass that starts at key `first`. Past the end nothing is requested, and an empty
  // group is committed.
  const auto fetch = [&](half* tile, const half* source, int first) {
    const int mine = first + warp * kKeys;
    if (mine < seq) {
      load_tile_async<Layout, kKeys, kWarp>(tile, source + head + static_cast<std::size_t>(mine) * kHeadDim,
                                            seq - mine, lane);
    }
    commit_copies();
  };

#if PROGRAMMATIC
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  if (kLoaders == kThreads || threadIdx.x < kLoaders) {
    load_tile_async<Layout, kRows, kLoaders>(queries, q + block, seq - first_row, threadIdx.x);
  }
  fetch(keys, k, 0);  // in one group with the queries
  fetch(values, v, 0);

  QueryOperand<kStripes> a;
  OutputTile<kStripes> o;
  RowPair state[kStripes];
  clear<kStripes>(o);

  wait_copies<1>();
  __syncthreads();  // the queries are complete
  load_queries<Layout, kStripes>(a, queries, flip);

  for (int first = 0; first < seq; first += kPass) {
    const int left = seq - first - warp * kKeys;  // of this warp's keys, uniform in the warp
    if (left <= 0) break;                         // a later pass has none either
    wait_copies<1>();                             // K has landed, V may be in flight
    __syncwarp();
    // phase: scores
    ScoreTile<kStripes, kKeys> s;
    multiply_keys<Layout, kStripes, kKeys>(s, a, keys);
    __syncwarp();  // K has been read
    fetch(keys, k, first + kPass);
    // phase: softmax
    if (left < kKeys) mask_scores<kStripes, kKeys>(s, left);
#pragma unroll
    for (int i = 0; i < kStripes; ++i) weigh(state[i], s[i], o[i], scale_log2e);
    wait_copies<1>();  // V has landed, the next K may be in flight
    __syncwarp();
    // phase: output
    multiply_values<Layout, kStripes, kKeys>(o, s, values);
    // phase: load
    __syncwarp();  // V has been read
    fetch(values, v, first + kPass);
  }

  // phase: other
  // Nothing is in flight into this warp's buffers: the last request was past the end.
  float* part = reinterpret_cast<float*>(keys);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
    state[i].sum_lanes();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = i * kMmaRows + h * 8 + lane / 4;
      store_part_row(part, row, o[i], h);
      if (lane % 4 == 0) {
        maxima[warp * kRows + row] = state[i].m[h];
        sums[warp * kRows + row] = state[i].l[h];
      }
    }
  }
  __syncthreads();  // all parts are complete

  // Eight threads per row, with columns c to c + 3 and 32 columns further.
  for_each_piece<kRows * 8, kThreads>([&](unsigned piece) {
    const int row = piece / 8;
    const int col = piece % 8 * 4;
    if (row >= seq - first_row) return;

    float m = maxima[row];  // finite: warp 0 has a key
#pragma unroll
    for (int w = 1; w < kWarps; ++w) m = fmaxf(m, maxima[w * kRows + row]);
    float l = 0.0f;
    float sum[8] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float f = fast_exp2(maxima[w * kRows + row] - m);  // 0 for a warp without keys, whose part is 0
      const float* from = shared_at<float>(kTilesAt + w * kWarpBytes);
      const float4 low = *reinterpret_cast<const float4*>(from + part_at(row, col));
      const float4 high = *reinterpret_cast<const float4*>(from + part_at(row, col + kHeadDim / 2));
      l = fmaf(sums[w * kRows + row], f, l);
      const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] = fmaf(x[c], f, sum[c]);
    }
    const float f = l > 0.0f ? __frcp_rn(l) : 0.0f;
    half* target = out + block + row * kHeadDim + col;
#pragma unroll
    for (int c = 0; c < 8; c += 4) {
      *reinterpret_cast<uint2*>(target + c / 4 * (kHeadDim / 2)) =
          make_uint2(pack_halves(sum[c] * f, sum[c + 1] * f), pack_halves(sum[c + 2] * f, sum[c + 3] * f));
    }
  });
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  flashcore::Launch l = {"mma_split_keys_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes};
  l.programmatic = PROGRAMMATIC != 0;
  return p.add(l);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  const PositiveScale scale = positive_scale(a.scale);
  return flashcore::run(p.launches[0], mma_split_keys_kernel, stream, a.q, a.k, a.v, a.out, s.S, scale.log2e,
                        scale.flip);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
