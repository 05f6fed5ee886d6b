// register_softmax: the softmax where the scores are, in the accumulators. USE_FUSED_SOFTMAX, STEPS.
//
//   USE_FUSED_SOFTMAX = 0  register_o, line by line: accumulators → shared memory → lanes by rows →
//                          softmax → weights in shared memory
//   USE_FUSED_SOFTMAX = 1  against it: a lane takes the maximum, exp2 and the sum over the slots it has,
//                          whose rows the introspected table tells (see fragment.cuh). No scores in
//                          shared memory; only the weights are laid down, for WMMA to read. As the
//                          factors of the output's rows are in the very lanes that hold those rows, they
//                          do not pass through shared memory either.
//
// Design 002 expects 4 KB less shared memory; the parent's scores already shared the weights' buffer, so
// what goes is the traffic, not the space (and 256 bytes of factors).
//
// Where the table has not been found to hold, the variant refuses to run.
//
// STEPS = 1 writes scores, weights, m and l out as well (problem `softmax_steps`): with both values of
// USE_FUSED_SOFTMAX, this compares each step of the one softmax with that of the other.
//
// From: FlashCore design 002.

#include <attention/async_copy.cuh>
#include <attention/fragment_softmax.cuh>
#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>
#include <attention/stripe_fragments.cuh>

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
constexpr int kWarps = kRows / kMma;  // a stripe each
constexpr int kThreads = kWarps * kWarp;
constexpr int kStride = kHeadDim + kPad;
constexpr int kTile = kKeys * kStride;  // halves of one stage of K, or of V
constexpr int kPitch = Stripe<kKeys>::kPitch;

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, kStages * kTile * 2);
constexpr int kWeightsAt = after(kValuesAt, kStages * kTile * 2);
constexpr int kFactorsAt = after(kWeightsAt, kWarps * Stripe<kKeys>::kElements * 2);
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
  half* keys = shared_at<half>(kKeysAt);
  half* values = shared_at<half>(kValuesAt);

  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(kWeightsAt) + row * kPitch;

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
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);

#if USE_FUSED_SOFTMAX
  FragmentState state;
#else
  RowState state;
  float* factors = shared_at<float>(kFactorsAt) + row;
#endif
  Accumulator o[kOutPieces];
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) nvcuda::wmma::fill_fragment(o[j], 0.0f);

#if STEPS
  const Steps steps = all_steps.of_head(seq);
  const int lane = threadIdx.x % kWarp;
#endif

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();  // of kStages - 1 tiles asked for, the oldest: this one has landed
    __syncthreads();             // everybody's copies have, and nobody reads the last tile any more
    fetch(tile + kStages - 1);   // into the last tile's stage

    const int stage = tile % kStages * kTile;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, keys + stage, kStride);

#if STEPS && USE_FUSED_SOFTMAX
    for (int i = 0; i < kKeys / kMma * kSlots; ++i) {
      const int r = first_row + row + fragment_row(lane, i % kSlots);
      const int key = tile * kKeys + i / kSlots * kMma + fragment_col(lane, i % kSlots);
      if (r < seq && key < seq) {
        steps.scores[static_cast<std::size_t>(r) * seq + key] = c[i / kSlots].x[i % kSlots] * scale_log2e;
      }
    }
#elif STEPS
    float* scratch = shared_at<float>(kScratchAt) + row * kScratchPitch;
    for (int j = 0; j < kKeys / kMma; ++j) {
      nvcuda::wmma::store_matrix_sync(scratch + j * kMma, c[j], kScratchPitch, nvcuda::wmma::mem_row_major);
    }
    __syncwarp();
    write_tile<kKeys>(steps.scores, seq, first_row + row, tile * kKeys,
                      [&](int r, int key) { return scratch[r * kScratchPitch + key] * scale_log2e; });
    __syncwarp();
#endif

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
    stripe_values<kKeys>(o, weights, kPitch, values + stage, kStride);
    __syncwarp();  // weights (and factors) have been read
  }

#if USE_FUSED_SOFTMAX
  float factor[2];
  fragment_normaliser(state, factor);
  scale_rows(o, factor);
#else
  scale_fragments(o, factors, stripe_normaliser(state));
#endif

#if STEPS && USE_FUSED_SOFTMAX
  for (int h = 0; h < 2; ++h) {
    const int r = first_row + row + lane / 4 + h * 8;
    if (lane % 4 == 0 && r < seq) {
      steps.m[r] = state.row[h].m;
      steps.l[r] = state.row[h].l;
    }
  }
#elif STEPS
  const float sum = state.l + __shfl_xor_sync(kAllLanes, state.l, kMma);
  if (lane < kMma && first_row + row + lane < seq) {
    steps.m[first_row + row + lane] = state.m;
    steps.l[first_row + row + lane] = sum;
  }
#endif

  store_fragments<Stripe<kKeys>::kScorePitch>(out + block + row * kHeadDim, o, reinterpret_cast<float*>(weights),
                                              seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({"register_softmax_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
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
