// fused_wmma_qk: one kernel; Q·Kᵀ with WMMA, online softmax, P·V still scalar.
//
// Compared with unfused_wmma: the S × S scores never leave the SM. A block processes 32 query rows and
// iterates over the keys in tiles of 32; a tile's scores exist in shared memory only until the online
// softmax. The price of this step: WMMA does not specify which lane has which element, so an output in
// fragments cannot simply be rescaled by rows (register_o finds a way). The output is therefore kept in
// plain registers, and P·V goes back to the CUDA cores: half of the FLOPs at a small part of the rate. The
// step is expected to be slower than the unfused kernels; it is a step of the ladder.
//
// 4 warps: 2 × 2 score tiles of 16 × 16. Softmax: one thread per row, 32 of 128 work. P·V: four threads
// share a row, each with 16 of its 64 columns.
//
// From: FlashCore design 001, phase 1.1 (design 004 plans the same step as its phase 1).

#include <attention/forward.cuh>
#include <attention/half8.cuh>
#include <attention/head.cuh>
#include <attention/scalar_softmax.cuh>
#include <attention/tile.cuh>
#include <attention/wmma.cuh>

#ifndef BLOCK_M
#define BLOCK_M 32
#endif
#ifndef BLOCK_N
#define BLOCK_N 32
#endif

namespace {

using namespace attention;

constexpr int kRows = BLOCK_M;
constexpr int kKeys = BLOCK_N;
constexpr int kWarps = (kRows / kMma) * (kKeys / kMma);  // one score tile each
constexpr int kThreads = kWarps * kWarp;
constexpr int kScoreStride = kKeys + kPadFloat;
constexpr int kThreadsOfRow = kThreads / kRows;
constexpr int kColumns = kHeadDim / kThreadsOfRow;  // output columns per thread

static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "BLOCK_M and BLOCK_N: multiples of 16");
static_assert(kThreads <= 1024 && kThreads % kRows == 0, "BLOCK_M x BLOCK_N: at most 32 score tiles");
static_assert(kColumns >= 8 && kColumns % 8 == 0, "a thread owns its columns in groups of 8");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    fused_wmma_qk_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                         half* __restrict__ out, int seq, float scale_log2e) {
  __shared__ alignas(128) half queries[kRows * kStride];
  __shared__ alignas(128) half keys[kKeys * kStride];
  __shared__ alignas(128) half values[kKeys * kStride];
  __shared__ alignas(128) float scores[kRows * kScoreStride];  // products, then weights
  __shared__ float factors[kRows];                             // the factor of each output row

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const int row = threadIdx.x / kThreadsOfRow;
  const int col = threadIdx.x % kThreadsOfRow * kColumns;

  // phase: load
  load_rows<kRows, kHeadDim, kStride, kThreads>(queries, q + block, kHeadDim, seq - first_row);

  RowState state;  // row threadIdx.x, in the first kRows threads
  float o[kColumns] = {};

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;
    const std::size_t tile = head + static_cast<std::size_t>(first) * kHeadDim;
    load_rows<kKeys, kHeadDim, kStride, kThreads>(keys, k + tile, kHeadDim, left);
    load_rows<kKeys, kHeadDim, kStride, kThreads>(values, v + tile, kHeadDim, left);
    __syncthreads();  // the tile is complete (and at first the queries)

    // phase: scores
    score_tile<kRows, kKeys, kHeadDim, kWarps>(scores, kScoreStride, queries, keys, kStride);
    __syncthreads();  // products are complete

    // phase: softmax
    if (threadIdx.x < kRows) {
      float* own = scores + threadIdx.x * kScoreStride;
      factors[threadIdx.x] =
          scalar_softmax_step<kKeys>(state, own, scale_log2e, left, [own](int j, float p) { own[j] = p; });
    }
    __syncthreads();  // weights and factors are complete

    const float factor = factors[row];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) o[i] *= factor;
    // phase: output
#pragma unroll 4
    for (int j = 0; j < kKeys; ++j) {  // padded keys add 0 · 0
      const float p = scores[row * kScoreStride + j];
#pragma unroll
      for (int i = 0; i < kColumns; i += 8) {
        float value[8];
        to_floats(load_half8(values + j * kStride + col + i), value);
#pragma unroll
        for (int c = 0; c < 8; ++c) o[i + c] = fmaf(p, value[c], o[i + c]);
      }
    }
    __syncthreads();  // this tile, its weights and factors have been read
  }

  // phase: other
  if (threadIdx.x < kRows) factors[threadIdx.x] = state.normaliser();
  __syncthreads();
  if (row >= seq - first_row) return;
  const float factor = factors[row];
#pragma unroll
  for (int i = 0; i < kColumns; i += 8) {
    float y[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) y[c] = o[i + c] * factor;
    store_half8(out + block + row * kHeadDim + col + i, to_half8(y));
  }
}

namespace {

constexpr Forward forward = {fused_wmma_qk_kernel, "fused_wmma_qk_kernel", kRows, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
