// fused_wmma: one kernel, both products with WMMA; 32 × 32 tiles, 8 warps.
//
// Compared with fused_wmma_qk: P·V uses the tensor cores too. The weights are rounded to half for it, and the
// fp32 output tile is in shared memory, where rows can be addressed: for each tile of keys it is rescaled
// there, loaded into a fragment, multiplied into and stored back. The output is 32 × 64, which is 2 × 4
// pieces of 16 × 16, so the block has 8 warps; a 32 × 32 score tile is 2 × 2 pieces, so warps 4 to 7 are idle
// during Q·Kᵀ. The softmax is unchanged, one thread per row: 32 of 256 threads work, which is the next
// thing to fix.
//
// A warp rescales exactly the piece of the output that it multiplies into, so a __syncwarp() between the
// two is sufficient.
//
// From: FlashCore design 001, phase 1.2.

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/scalar_softmax.cuh>
#include <attention/tile.cuh>
#include <attention/tile_elements.cuh>
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
constexpr int kScoreStride = kKeys + kPadFloat;
constexpr int kWeightStride = kKeys + kPad;

static_assert(kRows % kMma == 0 && kKeys % kMma == 0, "BLOCK_M and BLOCK_N: multiples of 16");
static_assert(kThreads <= 1024, "BLOCK_M: at most 128, 8 warps for each 32 rows");
static_assert(kThreads >= kRows, "the softmax needs a thread for each row");
static_assert(2 * (kRows * kStride + 2 * kKeys * kStride + kRows * kWeightStride) +
                      4 * (kRows * kScoreStride + kRows * kOutStride + kRows) <=
                  48 * 1024,
              "BLOCK_M x BLOCK_N: the tiles must fit 48 KiB of static shared memory");

}  // namespace

// Requests one block per SM, so that the compiler does not spill to fit more blocks (it did on sm_80).
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    fused_wmma_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
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

  RowState state;  // row threadIdx.x, in the first kRows threads

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
    if (threadIdx.x < kRows) {
      half* own = weights + threadIdx.x * kWeightStride;
      factors[threadIdx.x] =
          scalar_softmax_step<kKeys>(state, scores + threadIdx.x * kScoreStride, scale_log2e, left,
                                     [own](int j, float p) { own[j] = __float2half_rn(p); });
    }
    __syncthreads();  // weights and factors are complete

    rescale_elements(piece, kOutStride, factors + piece_row);
    __syncwarp();
    // phase: output
    accumulate_piece<kKeys>(piece, kOutStride, weights + piece_row * kWeightStride, kWeightStride, values + piece_col,
                            kStride);
    __syncthreads();  // this tile, its weights and factors have been read; the output is stored
  }

  // phase: other
  if (threadIdx.x < kRows) factors[threadIdx.x] = state.normaliser();
  __syncthreads();
  store_rows<kRows, kHeadDim, kOutStride, kThreads>(out + block, kHeadDim, output, seq - first_row,
                                                    [&](int row) { return factors[row]; });
}

namespace {

constexpr Forward forward = {fused_wmma_kernel, "fused_wmma_kernel", kRows, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
