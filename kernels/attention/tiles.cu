// tiles: the tile's size as a config, in dynamic shared memory. BLOCK_M × BLOCK_N, WARPS.
//
// Against vector_io: a larger tile reads K and V for more rows at once, and passes fewer barriers for
// the same keys; from 64 × 64 on it no longer fits the 48 KiB that may be declared statically, so the
// block asks for its shared memory at the launch. Score and output pieces are dealt out to however many
// warps there are: 48 × 48 has 9 and 12 of them for 8 warps, so that in both products half of the warps
// or more wait for the others. The softmax takes BLOCK_M / WARPS rows a warp; 48 keys fill one and a
// half turns of a warp's 32 lanes.
//
// From: FlashCore design 000, its small, medium and large design; designs 002 and 003 (32 × 64).

#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/shared_memory.cuh>
#include <attention/tile.cuh>
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
constexpr int kStride = kHeadDim + kPad;
constexpr int kScoreStride = kKeys + kPadFloat;
constexpr int kWeightStride = kKeys + kPad;
constexpr int kOutStride = kHeadDim + kPadFloat;

static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "BLOCK_M and BLOCK_N: multiples of 16");
static_assert(kThreads <= 1024 && kRows % kWarps == 0, "WARPS: at most 32, a divisor of BLOCK_M");

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, kKeys * kStride * 2);
constexpr int kScoresAt = after(kValuesAt, kKeys * kStride * 2);
constexpr int kWeightsAt = after(kScoresAt, kRows * kScoreStride * 4);
constexpr int kOutputAt = after(kWeightsAt, kRows * kWeightStride * 2);
constexpr int kFactorsAt = after(kOutputAt, kRows * kOutStride * 4);
constexpr int kSharedBytes = after(kFactorsAt, kRows * 4);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    tiles_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                 half* __restrict__ out, int seq, float scale_log2e) {
  half* queries = shared_at<half>(kQueriesAt);
  half* keys = shared_at<half>(kKeysAt);
  half* values = shared_at<half>(kValuesAt);
  float* scores = shared_at<float>(kScoresAt);
  half* weights = shared_at<half>(kWeightsAt);
  float* output = shared_at<float>(kOutputAt);
  float* factors = shared_at<float>(kFactorsAt);  // what each row of the output is multiplied by

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;

  load_rows<kRows, kHeadDim, kStride, kThreads>(queries, q + block, kHeadDim, seq - first_row);
  for (int p = warp; p < kPieces; p += kWarps) {
    clear_piece(output + p / kOutAcross * kMma * kOutStride + p % kOutAcross * kMma, kOutStride);
  }

  RowState state[kRowsOfWarp];  // of the rows that this warp takes in the softmax

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;
    const std::size_t tile = head + static_cast<std::size_t>(first) * kHeadDim;
    load_rows<kKeys, kHeadDim, kStride, kThreads>(keys, k + tile, kHeadDim, left);
    load_rows<kKeys, kHeadDim, kStride, kThreads>(values, v + tile, kHeadDim, left);
    __syncthreads();  // the tile is whole (and, the first time, queries and zeros)

    score_tile<kRows, kKeys, kHeadDim, kWarps>(scores, kScoreStride, queries, keys, kStride);
    __syncthreads();  // products are whole

#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int row = warp * kRowsOfWarp + r;
      half* own = weights + row * kWeightStride;
      const float factor =
          warp_softmax_step<kKeys>(state[r], scores + row * kScoreStride, scale_log2e, left,
                                   [own](int j, float p) { own[j] = __float2half_rn(p); });
      if (lane == 0) factors[row] = factor;
    }
    __syncthreads();  // weights and factors are whole

    for (int p = warp; p < kPieces; p += kWarps) {
      const int row = p / kOutAcross * kMma;
      const int col = p % kOutAcross * kMma;
      float* piece = output + row * kOutStride + col;
      rescale_piece(piece, kOutStride, factors + row);
      __syncwarp();
      Accumulator o;
      nvcuda::wmma::load_matrix_sync(o, piece, kOutStride, nvcuda::wmma::mem_row_major);
      multiply<kKeys>(o, weights + row * kWeightStride, kWeightStride, values + col, kStride);
      nvcuda::wmma::store_matrix_sync(piece, o, kOutStride, nvcuda::wmma::mem_row_major);
    }
    __syncthreads();  // nobody reads this tile, its weights or factors any more; the output is stored
  }

#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (lane == 0) factors[warp * kRowsOfWarp + r] = state[r].normaliser();
  }
  __syncthreads();
  store_rows<kRows, kHeadDim, kOutStride, kThreads>(out + block, kHeadDim, output, seq - first_row,
                                                    [&](int row) { return factors[row]; });
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({"tiles_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], tiles_kernel, stream, a.q, a.k, a.v, a.out, s.S, exp2_scale(a.scale));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
