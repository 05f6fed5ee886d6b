// fp16_accum_o: the output is stored and accumulated in fp16.
//
// Compared with cp_async_2stage: the output in shared memory takes 9 KiB instead of 17, and P·V uses the
// tensor cores' fp16 accumulators, which round after every 16 keys; rescaling rounds too. The sums of
// weights stay fp32. Before normalization, the output is as large as the number of equally good keys
// times V: above 65,504 it overflows, with 512 such keys at values of 128, or 65,536 at values of 1.
//
// From: FlashCore design 004, its list of risks: "trade precision for space". The block fits 64 KiB.

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

static_assert(kStages >= 1, "STAGES: at least 1");

using Stages = AsyncStages<kKeys, kStages, kThreads>;
using Memory = StripeMemory<kRows, kKeys, kStages>;
constexpr int kOutputAt = Memory::kEnd;
constexpr int kSharedBytes = after(kOutputAt, kRows * kStride * 2);

using HalfAccumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kMma, kMma, kMma, half>;

__device__ __forceinline__ Half8 scaled(const Half8& x, float factor) {
  float y[8];
  to_floats(x, y);
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] *= factor;
  return to_half8(y);
}

// Applies `change` to lane l's half of row l % 16 of the stripe.
template <typename Change>
__device__ __forceinline__ void rescale_halves(half* output, Change change) {
  const int lane = threadIdx.x % kWarp;
  half* own = output + lane % kMma * kStride + lane / kMma * (kHeadDim / 2);
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; i += 8) store_half8(own + i, change(load_half8(own + i)));
}

// output = output + P · V, rounded to fp16 after every 16 keys.
__device__ __forceinline__ void accumulate_halves(half* output, const half* weights, const half* values) {
  HalfAccumulator o[kOutPieces];
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
    nvcuda::wmma::load_matrix_sync(o[j], output + j * kMma, kStride, nvcuda::wmma::mem_row_major);
  }
  stripe_values<kKeys>(o, weights, Stripe<kKeys>::kPitch, values, kStride);
#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
    nvcuda::wmma::store_matrix_sync(output + j * kMma, o[j], kStride, nvcuda::wmma::mem_row_major);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    fp16_accum_o_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                        half* __restrict__ out, int seq, float scale_log2e) {
  // This warp's stripe.
  const int row = threadIdx.x / kWarp * kMma;
  half* queries = shared_at<half>(Memory::kQueriesAt) + row * kStride;
  half* weights = shared_at<half>(Memory::kWeightsAt) + row * Stripe<kKeys>::kPitch;
  half* output = shared_at<half>(kOutputAt) + row * kStride;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(Memory::kKeysAt), shared_at<half>(Memory::kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(Memory::kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // in tile 0's group
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);
  rescale_halves(output, [](const Half8&) { return zero_half8(); });

  RowState state;

  for (int tile = 0; tile < stages.tiles; ++tile) {
    stages.fetch(tile + kStages - 1);  // into the stage read in the previous turn
    wait_copies<kStages - 1>();        // all but the prefetched tiles: this tile's copies have landed
    __syncthreads();                   // all threads' have

    // phase: scores
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(tile), kStride);
    // phase: softmax
    const float factor = stripe_weights<kKeys>(state, weights, c, scale_log2e, seq - tile * kKeys);
    rescale_halves(output, [factor](const Half8& x) { return scaled(x, factor); });
    __syncwarp();  // the output is rescaled
    // phase: output
    accumulate_halves(output, weights, stages.values_of(tile));
    __syncthreads();  // all threads have read this tile
  }

  // phase: other
  // All lanes normalize their halves of a row; then whole rows are stored, 16 bytes per lane.
  const float normaliser = stripe_normaliser(state);
  rescale_halves(output, [normaliser](const Half8& x) { return scaled(x, normaliser); });
  __syncwarp();
  for (int i = threadIdx.x % kWarp; i < kMma * (kHeadDim / 8); i += kWarp) {
    const int r = i / (kHeadDim / 8);
    const int col = i % (kHeadDim / 8) * 8;
    if (r < seq - first_row - row) {
      store_half8_global(out + block + (row + r) * kHeadDim + col, load_half8(output + r * kStride + col));
    }
  }
}

namespace {

constexpr Forward forward = {fp16_accum_o_kernel, "fp16_accum_o_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
