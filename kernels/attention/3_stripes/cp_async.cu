// cp_async: K and V arrive by asynchronous copies while the previous tile is computed. STAGES,
// BLOCK_N, MIN_BLOCKS.
//
// Compared with row_stripe with as many stages: the same loop with cp.async in place of loads and stores
// (see async_stages.cuh). A thread starts the copies of tile t + STAGES - 1 and then computes tile t. It
// waits for a tile only when it needs it, STAGES - 1 turns after the request. The copies need no
// registers.
//
//   STAGES = 2, 3   prefetches one or two tiles
//   STAGES = 1      single_buffer: no prefetching; a tile is fetched, awaited and used. Shows what the
//                   second buffer gains, and the shared memory it costs
//   BLOCK_N         narrow_n32, narrow_n48: smaller tiles need less shared memory and more barriers
//   MIN_BLOCKS      launch_bounds_2: asks the compiler for two blocks per SM. Two blocks of 128 threads
//                   allow 255 registers per thread, so the request also raises the compiler's limit:
//                   it now uses 60 to 90 % more registers
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
#define MIN_BLOCKS 0  // not requested
#endif

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = BLOCK_N;
constexpr int kStages = STAGES;
constexpr int kWarps = kRows / kMma;  // one stripe each
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
                                                      seq - first_row);  // in tile 0's group
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);
  clear_stripe(output);

  RowState state;

  for (int tile = 0; tile < stages.tiles; ++tile) {
    stages.fetch(tile + kStages - 1);  // into the stage read in the previous turn
    wait_copies<kStages - 1>();        // all but the prefetched tiles: this tile's copies have landed
    __syncthreads();                   // all threads' have

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);
    // phase: softmax
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    // phase: output
    accumulate_stripe<kKeys>(output, weights, stages.values_of(tile), kStride);
    __syncthreads();  // all threads have read this tile
  }

  // phase: other
  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutStride, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

constexpr Forward forward = {cp_async_kernel, "cp_async_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
