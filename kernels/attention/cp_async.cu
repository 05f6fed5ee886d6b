// cp_async: K and V arrive by asynchronous copies while the tile before is computed on. STAGES,
// BLOCK_N, MIN_BLOCKS.
//
// Against row_stripe of as many stages: the same loop with cp.async in place of loads and stores (see
// async_stages.cuh). A thread starts the copies of tile t + STAGES - 1 and goes on to compute tile t; it
// waits for a tile only when it needs it, STAGES - 1 turns after it was asked for. No registers are held
// on the way.
//
//   STAGES = 2, 3   one or two tiles ahead
//   STAGES = 1      single_buffer: nothing ahead; a tile is fetched, waited for and used. What the
//                   second buffer is worth, and the shared memory that it costs
//   BLOCK_N         narrow_n32, narrow_n48: smaller tiles take less shared memory and more barriers
//   MIN_BLOCKS      launch_bounds_2: asks the compiler for two blocks on an SM. Two blocks of 128 threads
//                   may have 255 registers a thread, so the request is also a licence: where it held
//                   back without one, it now takes 60 to 90 % more
//
// From: FlashCore design 000, its pipeline; design 004, phase 4 and its list of risks.

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
#include <attention/stripe_memory.cuh>

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

static_assert(kStages >= 1, "STAGES: at least 1");

using Stages = AsyncStages<kKeys, kStages, kThreads>;
using Memory = StripeMemory<kRows, kKeys, kStages>;
constexpr int kOutputAt = Memory::kEnd;
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutStride * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    cp_async_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                    half* __restrict__ out, int seq, float scale_log2e) {
  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(Memory::kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(Memory::kWeightsAt) + row * Stripe<kKeys>::kPitch;
  float* output = shared_at<float>(kOutputAt) + row * kOutStride;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(Memory::kKeysAt), shared_at<half>(Memory::kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(Memory::kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // in the group of tile 0
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);
  clear_stripe(output);

  RowState state;

  for (int tile = 0; tile < stages.tiles; ++tile) {
    stages.fetch(tile + kStages - 1);  // into the stage that was read in the last turn
    wait_copies<kStages - 1>();        // all but the tiles ahead: this tile's copies have landed
    __syncthreads();                   // everybody's have

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);
    // phase: softmax
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    // phase: output
    accumulate_stripe<kKeys>(output, weights, stages.values_of(tile), kStride);
    __syncthreads();  // nobody reads this tile any more
  }

  // phase: other
  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutStride, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

constexpr Forward forward = {cp_async_kernel, "cp_async_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
