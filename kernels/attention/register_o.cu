// register_o: the output stays in the tensor cores' accumulators.
//
// Against fewer_syncs: P·V is accumulated in fragments that live as long as the block. The 17 KiB of
// output in shared memory are gone, and with them, for every tile, reading, rescaling and writing it
// and fetching and storing the fragments.
//
// WMMA does not say which lane holds which row of a fragment, and rows must be rescaled. But fragments
// of one type are alike: 16 factors in shared memory are loaded as an accumulator whose columns are all
// the same 16 numbers (column-major, 0 elements from one column to the next), which puts row r's factor
// into every slot that holds an element of row r. The rest is a product slot by slot. The same trick
// normalises the output at the end; it leaves through the stripe's buffer, 32 columns at a time.
//
// From: FlashCore design 004, whose list of risks (71.5 KB of shared memory against 64) this mends
// without giving up fp32, a buffer or tile size.

#include <attention/async_copy.cuh>
#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>
#include <attention/stripe_fragments.cuh>

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
constexpr int kFactorsAt = after(kWeightsAt, kWarps * Stripe<kKeys>::kElements * 2);
constexpr int kSharedBytes = after(kFactorsAt, kRows * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    register_o_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e) {
  half* keys = shared_at<half>(kKeysAt);
  half* values = shared_at<half>(kValuesAt);

  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(kWeightsAt) + row * Stripe<kKeys>::kPitch;
  float* factors = shared_at<float>(kFactorsAt) + row;

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

  RowState state;
  Accumulator o[kOutPieces];
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) nvcuda::wmma::fill_fragment(o[j], 0.0f);

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();  // of kStages - 1 tiles asked for, the oldest: this one has landed
    __syncthreads();             // everybody's copies have, and nobody reads the last tile any more
    fetch(tile + kStages - 1);   // into the last tile's stage

    const int stage = tile % kStages * kTile;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, keys + stage, kStride);
    scale_fragments(o, factors, stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys));
    stripe_values<kKeys>(o, weights, Stripe<kKeys>::kPitch, values + stage, kStride);
    __syncwarp();  // weights and factors have been read
  }

  scale_fragments(o, factors, stripe_normaliser(state));
  store_fragments<Stripe<kKeys>::kScorePitch>(out + block + row * kHeadDim, o, reinterpret_cast<float*>(weights),
                                              seq - first_row - row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({"register_o_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], register_o_kernel, stream, a.q, a.k, a.v, a.out, s.S, exp2_scale(a.scale));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
