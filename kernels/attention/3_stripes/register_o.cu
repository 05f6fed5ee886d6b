// register_o: the output stays in the tensor cores' accumulators.
//
// Compared with fewer_syncs: P·V is accumulated in fragments that live as long as the block. This removes
// the 17 KiB of output in shared memory and, for every tile, reading, rescaling and writing it, and loading
// and storing the fragments.
//
// WMMA does not specify which lane has which row of a fragment, and rows must be rescaled. But fragments of
// one type have the same layout: 16 factors in shared memory are loaded as an accumulator whose columns are
// all the same 16 numbers (column-major, stride 0 between columns), which puts row r's factor into every
// slot with an element of row r. The rest is a product slot by slot. The same trick normalizes the output
// at the end; it is stored through the stripe's buffer, 32 columns at a time.
//
// From: FlashCore design 004, whose list of risks (71.5 KB of shared memory against 64) this resolves
// without giving up fp32, a buffer or tile size.

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
#include <attention/stripe_fragments.cuh>
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
constexpr int kFactorsAt = Memory::kEnd;
constexpr int kSharedBytes = after(kFactorsAt, kRows * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    register_o_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e) {
  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(Memory::kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(Memory::kWeightsAt) + row * Stripe<kKeys>::kPitch;
  float* factors = shared_at<float>(kFactorsAt) + row;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(Memory::kKeysAt), shared_at<half>(Memory::kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(Memory::kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // in tile 0's group
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);

  RowState state;
  Accumulator o[kOutPieces];
  clear_fragments(o);

  for (int tile = 0; tile < stages.tiles; ++tile) {
    wait_copies<kStages - 2>();        // the oldest of kStages - 1 requested tiles, this one, has landed
    __syncthreads();                   // all threads' have, and all have read the previous tile
    stages.fetch(tile + kStages - 1);  // into the previous tile's stage

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);
    // phase: softmax
    scale_fragments(o, factors, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    // phase: output
    stripe_values<kKeys>(o, weights, Stripe<kKeys>::kPitch, stages.values_of(tile), kStride);
    __syncwarp();  // weights and factors have been read
  }

  // phase: other
  scale_fragments(o, factors, stripe_normaliser(state));
  store_fragments<Stripe<kKeys>::kScorePitch>(out + block + row * kHeadDim, o, reinterpret_cast<float*>(weights),
                                              seq - first_row - row);
}

namespace {

constexpr Forward forward = {register_o_kernel, "register_o_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
