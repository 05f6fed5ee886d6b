// row_stripe: each warp owns a stripe of 16 query rows. BLOCK_M × BLOCK_N, STAGES.
//
// Compared with tile_64x64:
//   - a warp scores its 16 rows against all keys of the tile, so a row's softmax, the rescaling of its
//     output and its P·V concern only one warp: two of four barriers per tile become __syncwarp();
//   - a row's state (m, l) and factor are in the registers of its two lanes;
//   - scores and weights pass through one buffer of the weights' size (see stripe.cuh): 9 KiB instead of
//     17 + 9;
//   - K and V have STAGES buffers, and tile t + STAGES - 1 is loaded before tile t is computed. The copies
//     are still ordinary loads and stores, for which every thread waits, so the stages only cost shared
//     memory: cp_async changes that.
//
// A block has BLOCK_M / 16 warps: 4, where tile_64x64 has 8. The sweep of design 004's phase 3 (64 × 96,
// 96 × 64, 128 × 64) uses this source.
//
// From: FlashCore design 004, the blueprint, phases 2 and 3. Its 79.5 and 71.5 KB assume scores of 4 and of
// 2 bytes; here they are fp32 but take 2 bytes per key, in two batches.

#include <attention/forward.cuh>
#include <attention/stripe_memory.cuh>
#include <attention/tile.cuh>

#ifndef BLOCK_M
#define BLOCK_M 64
#endif
#ifndef BLOCK_N
#define BLOCK_N 64
#endif
#ifndef STAGES
#define STAGES 2
#endif

namespace {

using namespace attention;

constexpr int kRows = BLOCK_M;
constexpr int kKeys = BLOCK_N;
constexpr int kStages = STAGES;
constexpr int kWarps = kRows / kMma;  // one stripe each
constexpr int kThreads = kWarps * kWarp;
constexpr int kTile = kKeys * kStride;  // halves per stage of K, or of V

static_assert(kRows % kMma == 0 && kThreads <= 1024, "BLOCK_M: a multiple of 16");
static_assert(kStages >= 1, "STAGES: at least 1");

using Memory = StripeMemory<kRows, kKeys, kStages>;
constexpr int kOutputAt = Memory::kEnd;
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutStride * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    row_stripe_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e) {
  half* keys = shared_at<half>(Memory::kKeysAt);
  half* values = shared_at<half>(Memory::kValuesAt);

  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(Memory::kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(Memory::kWeightsAt) + row * Stripe<kKeys>::kPitch;
  float* output = shared_at<float>(kOutputAt) + row * kOutStride;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const int tiles = (seq + kKeys - 1) / kKeys;

  const auto fetch = [&](int tile) {
    if (tile >= tiles) return;
    const int first = tile * kKeys;
    const int stage = tile % kStages * kTile;
    const std::size_t at = head + static_cast<std::size_t>(first) * kHeadDim;
    load_rows<kKeys, kHeadDim, kStride, kThreads>(keys + stage, k + at, kHeadDim, seq - first);
    load_rows<kKeys, kHeadDim, kStride, kThreads>(values + stage, v + at, kHeadDim, seq - first);
  };

  // phase: load
  load_rows<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(Memory::kQueriesAt), q + block, kHeadDim,
                                                seq - first_row);
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);
  clear_stripe(output);

  RowState state;

  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + kStages - 1);  // into the stage read in the previous turn
    __syncthreads();            // this tile is complete (and at first the queries)

    // phase: scores
    const int stage = tile % kStages * kTile;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, keys + stage, kStride);
    // phase: softmax
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    // phase: output
    accumulate_stripe<kKeys>(output, weights, values + stage, kStride);
    __syncthreads();  // all threads have read this tile
  }

  // phase: other
  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutStride, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

constexpr Forward forward = {row_stripe_kernel, "row_stripe_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
