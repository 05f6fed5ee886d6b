// mma_registers: mma.sync and ldmatrix in place of WMMA; Q, S, P and O in registers. SWIZZLE, STAGES.
//
//   mma_registers (SWIZZLE = 0)  compared with register_softmax: uses the instruction under WMMA directly,
//                 so every element's lane is specified. The weights are computed where P·V needs its left
//                 operand: nothing passes through shared memory between the products any more, which also
//                 saves two warp barriers. Q's operands are loaded once, not once per tile.
//                 One FMA before each exp2 applies the scale and the maximum.
//   xor_swizzle   (SWIZZLE = 1)  compared with mma_registers: K and V (and Q) are staged XOR-swizzled instead
//                 of padded (see swizzle.cuh). Both layouts have no bank conflicts; the swizzle does not
//                 need 16 bytes of padding per row. Nothing else differs: one macro.
//
// 64 query rows per block, 4 warps with 16 each; K and V in STAGES buffers filled by cp.async. The only
// barrier is the pipeline's, one per tile: after it this tile has landed for all warps, and all are done
// with the previous one, whose buffer is then refilled.
//
// From: FlashCore design 000 (XOR swizzle of the K/V staging) and 002 (its "step 2"; P in registers goes
// further than the document).

#include <attention/forward.cuh>
#include <attention/mma_stripe.cuh>
#include <attention/shared_memory.cuh>

#include <type_traits>

#ifndef SWIZZLE
#define SWIZZLE 0
#endif
#ifndef STAGES
#define STAGES 2
#endif

namespace {

using namespace attention;

static_assert(SWIZZLE == 0 || SWIZZLE == 1, "SWIZZLE: 0 or 1");
static_assert(STAGES >= 2, "STAGES: at least 2: a single stage needs a second barrier");

using Layout = std::conditional_t<SWIZZLE == 1, Swizzled, Padded>;
constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = STAGES;
constexpr int kThreads = kRows / kMmaRows * kWarp;
constexpr int kTile = kKeys * Layout::kPitch;  // halves per stage of K, or of V

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * Layout::kPitch * 2);
constexpr int kValuesAt = after(kKeysAt, kStages * kTile * 2);
constexpr int kSharedBytes = after(kValuesAt, kStages * kTile * 2);

}  // namespace

// Requests four blocks per SM: 128 registers per thread. Without it the two variants differ by a few registers.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    mma_registers_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                         half* __restrict__ out, int seq, float scale_log2e, unsigned flip) {
  half* keys = shared_at<half>(kKeysAt);
  half* values = shared_at<half>(kValuesAt);

  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMmaRows;
  half* queries = shared_at<half>(kQueriesAt) + row * Layout::kPitch;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const int tiles = (seq + kKeys - 1) / kKeys;

  const auto fetch = [&](int tile) {
    if (tile < tiles) {
      const int first = tile * kKeys;
      const int stage = tile % kStages * kTile;
      const std::size_t at = head + static_cast<std::size_t>(first) * kHeadDim;
      load_tile_async<Layout, kKeys, kThreads>(keys + stage, k + at, seq - first, threadIdx.x);
      load_tile_async<Layout, kKeys, kThreads>(values + stage, v + at, seq - first, threadIdx.x);
    }
    commit_copies();  // one group per tile, possibly empty
  };

  // phase: load
  load_tile_async<Layout, kRows, kThreads>(shared_at<half>(kQueriesAt), q + block, seq - first_row,
                                           threadIdx.x);  // in tile 0's group
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);

  QueryOperand<1> a;
  OutputTile<1> o;
  RowPair state;
  clear<1>(o);

  const auto arrive = [] {
    wait_copies<kStages - 2>();  // the oldest of kStages - 1 requested tiles has landed
    __syncthreads();             // all threads' have, and all have read the previous tile
  };

  arrive();
  load_queries<Layout, 1>(a, queries, flip);
  for (int tile = 0;;) {
    fetch(tile + kStages - 1);  // into the previous tile's stage

    // phase: scores
    const int stage = tile % kStages * kTile;
    const int left = seq - tile * kKeys;
    ScoreTile<1, kKeys> s;
    multiply_keys<Layout, 1, kKeys>(s, a, keys + stage);
    // phase: softmax
    if (left < kKeys) mask_scores<1, kKeys>(s, left);
    weigh(state, s[0], o[0], scale_log2e);
    // phase: output
    multiply_values<Layout, 1, kKeys>(o, s, values + stage);
    if (++tile == tiles) break;
    arrive();
  }

  // phase: other
  // The stripe's queries are not needed any more, and no other warp reads them.
  __syncwarp();
  store_output<Layout>(out + block + row * kHeadDim, o[0], state, queries, seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  return plan_forward(s, "mma_registers_kernel", kRows, kThreads, kSharedBytes);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  const PositiveScale scale = positive_scale(a.scale);
  return flashcore::run(p.launches[0], mma_registers_kernel, stream, a.q, a.k, a.v, a.out, s.S, scale.log2e,
                        scale.flip);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
