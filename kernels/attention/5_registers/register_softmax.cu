// register_softmax: the softmax on the scores in the accumulators. USE_FUSED_SOFTMAX, STEPS.
//
//   USE_FUSED_SOFTMAX = 0  register_o, line by line: accumulators → shared memory → lanes by rows →
//                          softmax → weights in shared memory
//   USE_FUSED_SOFTMAX = 1  compared with it: a lane computes maximum, exp2 and sum over its own slots,
//                          whose rows are in the introspected table (see fragment.cuh). No scores in
//                          shared memory; only the weights are stored, for WMMA to read. The factors of
//                          the output's rows are in the lanes that have those rows, so they do not pass
//                          through shared memory either.
//
// Design 002 expects 4 KB less shared memory; the parent's scores already shared the weights' buffer, so
// this removes the traffic, not the space (except 256 bytes of factors).
//
// On GPUs for which the table was not verified, the variant refuses to run.
//
// STEPS = 1 also writes scores, weights, m and l (problem `softmax_steps`): with both values of
// USE_FUSED_SOFTMAX, this compares each step of one softmax with the other's.
//
// From: FlashCore design 002.

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
#include <attention/fragment_softmax.cuh>
#include <attention/stripe_fragments.cuh>
#include <attention/stripe_memory.cuh>

#ifndef USE_FUSED_SOFTMAX
#define USE_FUSED_SOFTMAX 1
#endif
#ifndef STEPS
#define STEPS 0
#endif
#if STEPS
#include <attention/softmax_steps.cuh>
#endif

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = 2;
constexpr int kWarps = kRows / kMma;  // one stripe each
constexpr int kThreads = kWarps * kWarp;
constexpr int kPitch = Stripe<kKeys>::kPitch;

using Stages = AsyncStages<kKeys, kStages, kThreads>;
using Memory = StripeMemory<kRows, kKeys, kStages>;
constexpr int kFactorsAt = Memory::kEnd;
constexpr int kScratchAt = after(kFactorsAt, USE_FUSED_SOFTMAX ? 0 : kRows * 4);
constexpr int kScratchPitch = kKeys + kPadFloat;  // the parent's scores, for STEPS
constexpr int kSharedBytes = after(kScratchAt, STEPS && !USE_FUSED_SOFTMAX ? kRows * kScratchPitch * 4 : 0);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    register_softmax_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                            half* __restrict__ out,
#if STEPS
                            Steps all_steps,
#endif
                            int seq, float scale_log2e) {
  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(Memory::kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(Memory::kWeightsAt) + row * kPitch;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(Memory::kKeysAt), shared_at<half>(Memory::kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(Memory::kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // in tile 0's group
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);

#if USE_FUSED_SOFTMAX
  FragmentState state;
#else
  RowState state;
  float* factors = shared_at<float>(kFactorsAt) + row;
#endif
  Accumulator o[kOutPieces];
  clear_fragments(o);

#if STEPS
  const Steps steps = all_steps.of_head(seq);
  const int lane = threadIdx.x % kWarp;
#endif

  for (int tile = 0; tile < stages.tiles; ++tile) {
    wait_copies<kStages - 2>();        // the oldest of kStages - 1 requested tiles, this one, has landed
    __syncthreads();                   // all threads' have, and all have read the previous tile
    stages.fetch(tile + kStages - 1);  // into the previous tile's stage

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);

#if STEPS && USE_FUSED_SOFTMAX
    for (int i = 0; i < kKeys / kMma * kSlots; ++i) {
      const int r = first_row + row + fragment_row(lane, i % kSlots);
      const int key = tile * kKeys + i / kSlots * kMma + fragment_col(lane, i % kSlots);
      if (r < seq && key < seq) {
        steps.scores[static_cast<std::size_t>(r) * seq + key] = c[i / kSlots].x[i % kSlots] * scale_log2e;
      }
    }
#elif STEPS
    write_by_memory<kScratchPitch>(steps, seq, first_row + row, tile * kKeys, c, scale_log2e,
                                   shared_at<float>(kScratchAt) + row * kScratchPitch);
#endif

    // phase: softmax
#if USE_FUSED_SOFTMAX
    float factor[2];
    fragment_weights<kKeys>(state, factor, weights, c, scale_log2e, seq - tile * kKeys);
    scale_rows(o, factor);
#else
    scale_fragments(o, factors, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
#endif

#if STEPS
    write_tile<kKeys>(steps.weights, seq, first_row + row, tile * kKeys,
                      [&](int r, int key) { return weights[r * kPitch + key]; });
#endif
    // phase: output
    stripe_values<kKeys>(o, weights, kPitch, stages.values_of(tile), kStride);
    __syncwarp();  // weights (and factors) have been read
  }

  // phase: other
#if USE_FUSED_SOFTMAX
  float factor[2];
  fragment_normaliser(state, factor);
  scale_rows(o, factor);
#else
  scale_fragments(o, factors, stripe_normaliser(state));
#endif

#if STEPS
  write_states(steps, seq, lane, first_row + row, state);
#endif

  store_fragments<Stripe<kKeys>::kScorePitch>(out + block + row * kHeadDim, o, reinterpret_cast<float*>(weights),
                                              seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  return plan_forward(s, "register_softmax_kernel", kRows, kThreads, kSharedBytes);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
#if USE_FUSED_SOFTMAX
  const cudaError_t known = fragment_table_holds();
  if (known != cudaSuccess) return known;
#endif
  return flashcore::run(p.launches[0], register_softmax_kernel, stream, a.q, a.k, a.v, a.out,
#if STEPS
                        Steps{static_cast<float*>(a.scores), static_cast<half*>(a.weights),
                              static_cast<float*>(a.m), static_cast<float*>(a.l)},
#endif
                        s.S, exp2_scale(a.scale));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
