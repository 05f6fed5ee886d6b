// warp_softmax: the softmax by whole warps instead of one thread per row.
//
// Compared with fused_wmma: a warp takes a row of scores, a lane one of its 32 keys, and the maximum and the
// sum are butterfly shuffles. Each of the 8 warps has 4 rows, so all 256 threads work instead of 32; all
// lanes of a warp have its rows' states. Nothing else changes, except that the compiler no longer needs a
// minimum number of blocks.
//
// From: FlashCore design 001, phase 1.3, which puts the scalar softmax at 45 % of the kernel's time.

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/tile.cuh>
#include <attention/tile_elements.cuh>
#include <attention/warp_softmax.cuh>
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
constexpr int kOutAcross = kHeadDim / kMma;
constexpr int kWarps = (kRows / kMma) * kOutAcross;  // one output piece each
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsOfWarp = kRows / kWarps;  // in the softmax
constexpr int kScoreStride = kKeys + kPadFloat;
constexpr int kWeightStride = kKeys + kPad;

static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "BLOCK_M and BLOCK_N: multiples of 16");
static_assert(kThreads <= 1024, "BLOCK_M: at most 128, 8 warps for each 32 rows");
static_assert(2 * (kRows * kStride + 2 * kKeys * kStride + kRows * kWeightStride) +
                      4 * (kRows * kScoreStride + kRows * kOutStride + kRows) <=
                  48 * 1024,
              "BLOCK_M x BLOCK_N: the tiles must fit 48 KiB of static shared memory");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    warp_softmax_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                        half* __restrict__ out, int seq, float scale_log2e) {
  __shared__ alignas(128) half queries[kRows * kStride];
  __shared__ alignas(128) half keys[kKeys * kStride];
  __shared__ alignas(128) half values[kKeys * kStride];
  __shared__ alignas(128) float scores[kRows * kScoreStride];
  __shared__ alignas(128) half weights[kRows * kWeightStride];
  __shared__ alignas(128) float output[kRows * kOutStride];
  __shared__ float factors[kRows];  // the factor of each output row

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int piece_row = warp / kOutAcross * kMma;  // first row of the warp's 16 × 16 output piece
  const int piece_col = warp % kOutAcross * kMma;
  float* piece = output + piece_row * kOutStride + piece_col;
  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;

  // phase: load
  load_rows<kRows, kHeadDim, kStride, kThreads>(queries, q + block, kHeadDim, seq - first_row);
  for (int i = lane; i < kMma * kMma; i += kWarp) piece[i / kMma * kOutStride + i % kMma] = 0.0f;

  RowState state[kRowsOfWarp];  // of this warp's rows in the softmax

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;
    const std::size_t tile = head + static_cast<std::size_t>(first) * kHeadDim;
    load_rows<kKeys, kHeadDim, kStride, kThreads>(keys, k + tile, kHeadDim, left);
    load_rows<kKeys, kHeadDim, kStride, kThreads>(values, v + tile, kHeadDim, left);
    __syncthreads();  // the tile is complete (and at first the queries and zeros)

    // phase: scores
    score_tile<kRows, kKeys, kHeadDim, kWarps>(scores, kScoreStride, queries, keys, kStride);
    __syncthreads();  // products are complete

    // phase: softmax
    warp_softmax_rows<kKeys>(state, weights, kWeightStride, factors, scores, kScoreStride, scale_log2e, left);
    __syncthreads();  // weights and factors are complete

    rescale_elements(piece, kOutStride, factors + piece_row);
    __syncwarp();
    // phase: output
    accumulate_piece<kKeys>(piece, kOutStride, weights + piece_row * kWeightStride, kWeightStride, values + piece_col,
                            kStride);
    __syncthreads();  // this tile, its weights and factors have been read; the output is stored
  }

  // phase: other
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (lane == 0) factors[warp * kRowsOfWarp + r] = state[r].normaliser();
  }
  __syncthreads();
  store_rows<kRows, kHeadDim, kOutStride, kThreads>(out + block, kHeadDim, output, seq - first_row,
                                                    [&](int row) { return factors[row]; });
}

namespace {

constexpr Forward forward = {warp_softmax_kernel, "warp_softmax_kernel", kRows, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
