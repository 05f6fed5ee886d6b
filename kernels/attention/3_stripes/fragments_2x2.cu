// fragments_2x2: a warp multiplies 2 × 2 pieces instead of 1 × 4.
//
// Compared with cp_async_2stage: the 4 warps are arranged 2 × 2 over the 64 × 64 scores, and again over the
// 64 × 64 output, 32 × 32 each. A step of 16 along the depth then loads 2 + 2 fragments for its 4 products
// instead of 1 + 4, a fifth less. (Design 004 expects fewer registers, but the compiler uses no fewer.)
//
// The price: a row of scores comes from two warps, and its weights go to two. So complete scores are stored
// (17 KiB; the weights then replace their rows in place), and each tile needs two more barriers: after the
// scores, and before P·V. The softmax itself is the stripe's.
//
// From: FlashCore design 004, its list of risks: "process 2×2 WMMA grid instead of 1×4".

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
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
constexpr int kWarps = kRows / kMma;  // one stripe each in the softmax, 2 × 2 in the products
constexpr int kThreads = kWarps * kWarp;
constexpr int kScorePitch = kKeys + kPadFloat;    // floats per row, as scores
constexpr int kWeightPitch = 2 * kScorePitch;     // halves per row, as weights: the same bytes
constexpr int kSide = 2;                          // pieces along each side of a warp's grid

static_assert(kStages >= 1, "STAGES: at least 1");

using Stages = AsyncStages<kKeys, kStages, kThreads>;
constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, Stages::kBytes);
constexpr int kWeightsAt = after(kValuesAt, Stages::kBytes);
constexpr int kOutputAt = after(kWeightsAt, kRows * kScorePitch * 4);
constexpr int kSharedBytes = after(kOutputAt, kRows * kOutStride * 4);

// scores = Q · Kᵀ for 2 × 2 pieces.
__device__ __forceinline__ void grid_scores(float* scores, const half* queries, const half* keys) {
  Accumulator c[kSide][kSide];
  for (auto& line : c) {
    for (auto& piece : line) nvcuda::wmma::fill_fragment(piece, 0.0f);
  }
#pragma unroll
  for (int k = 0; k < kHeadDim; k += kMma) {
    FragmentA a[kSide];
    FragmentBt b[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      nvcuda::wmma::load_matrix_sync(a[i], queries + i * kMma * kStride + k, kStride);
      nvcuda::wmma::load_matrix_sync(b[i], keys + i * kMma * kStride + k, kStride);
    }
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i) {
      Accumulator& piece = c[i / kSide][i % kSide];
      nvcuda::wmma::mma_sync(piece, a[i / kSide], b[i % kSide], piece);
    }
  }
#pragma unroll
  for (int i = 0; i < kSide * kSide; ++i) {
    nvcuda::wmma::store_matrix_sync(scores + i / kSide * kMma * kScorePitch + i % kSide * kMma,
                                    c[i / kSide][i % kSide], kScorePitch, nvcuda::wmma::mem_row_major);
  }
}

// output = output + P · V for 2 × 2 pieces.
__device__ __forceinline__ void grid_values(float* output, const half* weights, const half* values) {
  Accumulator o[kSide][kSide];
#pragma unroll
  for (int i = 0; i < kSide * kSide; ++i) {
    nvcuda::wmma::load_matrix_sync(o[i / kSide][i % kSide],
                                   output + i / kSide * kMma * kOutStride + i % kSide * kMma, kOutStride,
                                   nvcuda::wmma::mem_row_major);
  }
#pragma unroll
  for (int k = 0; k < kKeys; k += kMma) {
    FragmentA a[kSide];
    FragmentB b[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      nvcuda::wmma::load_matrix_sync(a[i], weights + i * kMma * kWeightPitch + k, kWeightPitch);
      nvcuda::wmma::load_matrix_sync(b[i], values + k * kStride + i * kMma, kStride);
    }
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i) {
      Accumulator& piece = o[i / kSide][i % kSide];
      nvcuda::wmma::mma_sync(piece, a[i / kSide], b[i % kSide], piece);
    }
  }
#pragma unroll
  for (int i = 0; i < kSide * kSide; ++i) {
    nvcuda::wmma::store_matrix_sync(output + i / kSide * kMma * kOutStride + i % kSide * kMma,
                                    o[i / kSide][i % kSide], kOutStride, nvcuda::wmma::mem_row_major);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    fragments_2x2_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                         half* __restrict__ out, int seq, float scale_log2e) {
  half* queries = shared_at<half>(kQueriesAt);
  float* scores = shared_at<float>(kWeightsAt);
  half* weights = shared_at<half>(kWeightsAt);
  float* output = shared_at<float>(kOutputAt);

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int row = warp * kMma;  // of this warp's stripe in the softmax
  const int own = (row + lane % kMma) * kScorePitch + lane / kMma * (kKeys / 2);  // this lane's half of a row
  const int grid_row = warp / 2 * kSide * kMma;  // first row of this warp's 2 × 2 pieces in the products
  const int grid_col = warp % 2 * kSide * kMma;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(kKeysAt), shared_at<half>(kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(queries, q + block, kHeadDim,
                                                      seq - first_row);  // in tile 0's group
  for (int tile = 0; tile < kStages - 1; ++tile) stages.fetch(tile);
  clear_stripe(output + row * kOutStride);

  RowState state;

  for (int tile = 0; tile < stages.tiles; ++tile) {
    stages.fetch(tile + kStages - 1);  // into the stage read in the previous turn
    wait_copies<kStages - 1>();        // all but the prefetched tiles: this tile's copies have landed
    __syncthreads();                   // all threads' have

    // phase: scores
    grid_scores(scores + grid_row * kScorePitch + grid_col, queries + grid_row * kStride,
                stages.keys_of(tile) + grid_col * kStride);
    __syncthreads();  // rows of scores are complete

    // phase: softmax
    float score[kKeys / 2];
#pragma unroll
    for (int i = 0; i < kKeys / 2; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(scores + own + i);
      score[i] = x.x * scale_log2e;
      score[i + 1] = x.y * scale_log2e;
      score[i + 2] = x.z * scale_log2e;
      score[i + 3] = x.w * scale_log2e;
    }
    __syncwarp();  // both lanes of a row have read it: weights may replace it
    half* own_weights = weights + (row + lane % kMma) * kWeightPitch;
    const int side = lane / kMma;
    const float factor = stripe_softmax(
        state, score, kKeys, seq - tile * kKeys, [side](int i) { return side * (kKeys / 2) + i; },
        [own_weights](int first, const Half8& p) { store_half8(own_weights + first, p); });
    rescale_stripe(output + row * kOutStride, factor);
    __syncthreads();  // weights are complete and the output is rescaled

    // phase: output
    grid_values(output + grid_row * kOutStride + grid_col, weights + grid_row * kWeightPitch,
                stages.values_of(tile) + grid_col);
    __syncthreads();  // this tile and its weights have been read, and the output is stored
  }

  // phase: other
  store_stripe<kHeadDim>(out + block + row * kHeadDim, output + row * kOutStride, kOutStride,
                         stripe_normaliser(state), seq - first_row - row);
}

namespace {

constexpr Forward forward = {fragments_2x2_kernel, "fragments_2x2_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
