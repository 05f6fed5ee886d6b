// fewer_syncs: one barrier per tile instead of two. STAGES.
//
// Compared with cp_async_2stage: the barrier that makes tile t visible also implies that every warp is done
// with tile t - 1. So the next copies, into the stage of tile t - 1, start after that barrier instead of
// before it, and the barrier at the end of the turn is not needed. A tile is requested slightly later than
// before, and warps may drift apart by up to one tile.
//
// From: FlashCore design 004, phase 4; design 000 requires one barrier per tile.

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
#include <attention/stripe_memory.cuh>

#ifndef STAGES
#define STAGES 2
#endif

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = STAGES;
constexpr int kWarps = kRows / kMma;  // one stripe each
constexpr int kThreads = kWarps * kWarp;

static_assert(kStages >= 2, "STAGES: at least 2: a single stage needs the second barrier");

using Stages = AsyncStages<kKeys, kStages, kThreads>;
using Memory = StripeMemory<kRows, kKeys, kStages>;
constexpr int kOutputAt = Memory::kEnd;
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutStride * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    fewer_syncs_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
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
    wait_copies<kStages - 2>();        // the oldest of kStages - 1 requested tiles, this one, has landed
    __syncthreads();                   // all threads' have, and all have read the previous tile
    stages.fetch(tile + kStages - 1);  // into the previous tile's stage

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);
    // phase: softmax
    rescale_stripe(output, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    __syncwarp();  // the output is rescaled
    // phase: output
    accumulate_stripe<kKeys>(output, weights, stages.values_of(tile), kStride);
    __syncwarp();  // the output is stored
  }

  // phase: other
  store_stripe<kHeadDim>(out + block + row * kHeadDim, output, kOutStride, stripe_normaliser(state),
                         seq - first_row - row);
}

namespace {

constexpr Forward forward = {fewer_syncs_kernel, "fewer_syncs_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
