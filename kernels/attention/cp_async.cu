// cp_async: K and V arrive by asynchronous copies while the tile before is computed on. STAGES,
// BLOCK_N, MIN_BLOCKS.
//
// Against row_stripe of as many stages: the same loop with cp.async in place of loads and stores. A
// thread starts the copies of tile t + STAGES - 1 and goes on to compute tile t; it waits for a tile
// only when it needs it, STAGES - 1 turns after it was asked for. No registers are held on the way.
//
//   STAGES = 2, 3   one or two tiles ahead
//   STAGES = 1      single_buffer: nothing ahead; a tile is fetched, waited for and used. What the
//                   second buffer is worth, and the shared memory that it costs
//   BLOCK_N         narrow_n32, narrow_n48: smaller tiles take less shared memory and more barriers
//   MIN_BLOCKS      launch_bounds_2: asks the compiler for two blocks on an SM. Two blocks of 128 threads
//                   may have 255 registers a thread, so the request is also a licence: where it holds
//                   back without one, it now takes half as many registers again
//
// From: FlashCore design 000, its pipeline; design 004, phase 4 and its list of risks.

#include <attention/async_copy.cuh>
#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>

#ifndef BLOCK_N
#define BLOCK_N 64
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 0  // none asked for
#endif

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = BLOCK_N;
constexpr int kStages = STAGES;
constexpr int kWarps = kRows / kMma;  // a stripe each
constexpr int kThreads = kWarps * kWarp;
constexpr int kStride = kHeadDim + kPad;
constexpr int kTile = kKeys * kStride;  // halves of one stage of K, or of V

static_assert(kStages >= 1, "STAGES: at least 1");

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, kStages * kTile * 2);
constexpr int kWeightsAt = after(kValuesAt, kStages * kTile * 2);
constexpr int kOutputAt = after(kWeightsAt, kWarps * Stripe<kKeys>::kElements * 2);
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutPitch * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    cp_async_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
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
    fetch(tile + kStages - 1);   // into the stage that was read in the last turn
    wait_copies<kStages - 1>();  // all but the tiles ahead: this tile's copies have landed
    __syncthreads();             // everybody's have

    const int stage = tile % kStages * kTile;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, keys + stage, kStride);
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    accumulate_stripe<kKeys>(output, weights, values + stage, kStride);
    __syncthreads();  // nobody reads this tile any more
  }

  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutPitch, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({"cp_async_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], cp_async_kernel, stream, a.q, a.k, a.v, a.out, s.S, exp2_scale(a.scale));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
