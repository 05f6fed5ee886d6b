// fewer_syncs: one barrier a tile instead of two. STAGES.
//
// Against cp_async_2stage: the barrier that makes tile t visible also tells that every warp is done with
// tile t - 1. So the next copies, which go into the stage of tile t - 1, are started after that barrier
// instead of before it, and the barrier at the end of the turn is not needed. A tile is asked for a
// moment later than before, and warps may drift apart by up to a tile.
//
// From: FlashCore design 004, phase 4; design 000 asks for one barrier a tile.

#include <attention/async_copy.cuh>
#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>

#ifndef STAGES
#define STAGES 2
#endif

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = STAGES;
constexpr int kWarps = kRows / kMma;  // a stripe each
constexpr int kThreads = kWarps * kWarp;
constexpr int kStride = kHeadDim + kPad;
constexpr int kTile = kKeys * kStride;  // halves of one stage of K, or of V

static_assert(kStages >= 2, "STAGES: at least 2: a single stage needs the second barrier");

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, kStages * kTile * 2);
constexpr int kWeightsAt = after(kValuesAt, kStages * kTile * 2);
constexpr int kOutputAt = after(kWeightsAt, kWarps * Stripe<kKeys>::kElements * 2);
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutPitch * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    fewer_syncs_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                       half* __restrict__ out, int seq, float scale_log2e) {
  half* keys = shared_at<half>(kKeysAt);
  half* values = shared_at<half>(kValuesAt);

  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(kWeightsAt) + row * Stripe<kKeys>::kPitch;
  float* output = shared_at<float>(kOutputAt) + row * kOutPitch;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const int tiles = (seq + kKeys - 1) / kKeys;

  const auto fetch = [&](int tile) {
    if (tile < tiles) {
      const int first = tile * kKeys;
      const int stage = tile % kStages * kTile;
      const std::size_t at = head + static_cast<std::size_t>(first) * kHeadDim;
      load_rows_async<kKeys, kHeadDim, kStride, kThreads>(keys + stage, k + at, kHeadDim, seq - first);
      load_rows_async<kKeys, kHeadDim, kStride, kThreads>(values + stage, v + at, kHeadDim, seq - first);
    }
    commit_copies();  // one group a tile, if only an empty one
  };

  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // in the group of tile 0
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);
  clear_stripe(output);

  RowState state;

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();  // of kStages - 1 tiles asked for, the oldest: this one has landed
    __syncthreads();             // everybody's copies have, and nobody reads the last tile any more
    fetch(tile + kStages - 1);   // into the last tile's stage

    const int stage = tile % kStages * kTile;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, keys + stage, kStride);
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    accumulate_stripe<kKeys>(output, weights, values + stage, kStride);
    __syncwarp();  // the output is stored
  }

  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutPitch, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({"fewer_syncs_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], fewer_syncs_kernel, stream, a.q, a.k, a.v, a.out, s.S, exp2_scale(a.scale));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
