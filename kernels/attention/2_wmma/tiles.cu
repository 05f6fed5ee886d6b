// tiles: the tile's size as a config, in dynamic shared memory. BLOCK_M × BLOCK_N, WARPS.
//
// Compared with vector_io: a larger tile reads K and V for more rows at once and needs fewer barriers for the
// same keys. 48 × 48 already exceeds the 48 KiB of static shared memory, so the block uses dynamic shared
// memory. Score and output pieces are distributed over the warps: 48 × 48 has 9 and 12 of them for 8 warps,
// so in both products half of the warps or more wait for the others. The softmax takes BLOCK_M / WARPS rows
// per warp; 48 keys are one and a half passes of a warp's 32 lanes.
// half turns of a warp's 32 lanes.
//
// From: FlashCore design 000, its small, medium and large design; designs 002 and 003 (32 × 64).

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/tile.cuh>
#include <attention/tile_memory.cuh>
#include <attention/warp_softmax.cuh>
#include <attention/wmma.cuh>

#ifndef BLOCK_M
#define BLOCK_M 64
#endif
#ifndef BLOCK_N
#define BLOCK_N 64
#endif
#ifndef WARPS
#define WARPS 8
#endif

namespace {

using namespace attention;

constexpr int kRows = BLOCK_M;
constexpr int kKeys = BLOCK_N;
constexpr int kWarps = WARPS;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsOfWarp = kRows / kWarps;  // in the softmax
constexpr int kOutAcross = kHeadDim / kMma;
constexpr int kPieces = kRows / kMma * kOutAcross;  // of the output

static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "BLOCK_M and BLOCK_N: multiples of 16");
static_assert(kThreads <= 1024 && kRows % kWarps == 0, "WARPS: at most 32, a divisor of BLOCK_M");

using Memory = TileMemory<kRows, kKeys>;
constexpr int kScoreStride = Memory::kScoreStride;    // floats
constexpr int kWeightStride = Memory::kWeightStride;  // halves

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    tiles_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                 half* __restrict__ out, int seq, float scale_log2e) {
  half* queries = shared_at<half>(Memory::kQueriesAt);
  half* keys = shared_at<half>(Memory::kKeysAt);
  half* values = shared_at<half>(Memory::kValuesAt);
  float* scores = shared_at<float>(Memory::kScoresAt);
  half* weights = shared_at<half>(Memory::kWeightsAt);
  float* output = shared_at<float>(Memory::kOutputAt);
  float* factors = shared_at<float>(Memory::kFactorsAt);  // the factor of each output row

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;

  // phase: load
  load_rows<kRows, kHeadDim, kStride, kThreads>(queries, q + block, kHeadDim, seq - first_row);
  for (int p = warp; p < kPieces; p += kWarps) {
    clear_piece(output + p / kOutAcross * kMma * kOutStride + p % kOutAcross * kMma, kOutStride);
  }

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

    for (int p = warp; p < kPieces; p += kWarps) {
      const int row = p / kOutAcross * kMma;
      const int col = p % kOutAcross * kMma;
      float* piece = output + row * kOutStride + col;
      rescale_piece(piece, kOutStride, factors + row);
      __syncwarp();
      // phase: output
      accumulate_piece<kKeys>(piece, kOutStride, weights + row * kWeightStride, kWeightStride, values + col, kStride);
    }
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

constexpr Forward forward = {tiles_kernel, "tiles_kernel", kRows, kThreads, Memory::kBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
