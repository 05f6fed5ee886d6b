// vector_io: the width of the kernel's explicit loads and stores. VECTOR = 0 or 1.
//
//   element_io (0)  compared with warp_softmax: tiles are loaded and the output is stored one half (2 bytes)
//                   at a time, like the kernels of the design documents before vectorization; a step back, so
//                   that the next step starts where the documents start.
//   vector_io  (1)  compared with element_io: 16 bytes at a time between global and shared memory, and for
//                   rescaling the output in shared memory.
//
// Either way a warp's global accesses are coalesced, so the same bytes move: this saves instructions, and
// with them stalls on the memory pipe's instruction queue. Products and softmax are those of warp_softmax;
// the source cannot choose the width of WMMA's fragment loads.
//
// From: FlashCore design 001, phase 1.5; design 004, phase 4.

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/tile.cuh>
#include <attention/tile_elements.cuh>
#include <attention/warp_softmax.cuh>
#include <attention/wmma.cuh>

#ifndef VECTOR
#define VECTOR 1
#endif

namespace {

using namespace attention;

constexpr bool kVector = VECTOR;
static_assert(VECTOR == 0 || VECTOR == 1, "VECTOR: 0 or 1");

constexpr int kRows = 32;
constexpr int kKeys = 32;
constexpr int kOutAcross = kHeadDim / kMma;
constexpr int kWarps = (kRows / kMma) * kOutAcross;  // one output piece each
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsOfWarp = kRows / kWarps;  // in the softmax
constexpr int kScoreStride = kKeys + kPadFloat;
constexpr int kWeightStride = kKeys + kPad;

template <int kTileRows>
__device__ __forceinline__ void fetch(half* tile, const half* source, int valid) {
  if constexpr (kVector) {
    load_rows<kTileRows, kHeadDim, kStride, kThreads>(tile, source, kHeadDim, valid);
  } else {
    load_elements<kTileRows, kHeadDim, kStride, kThreads>(tile, source, kHeadDim, valid);
  }
}

__device__ __forceinline__ void rescale(float* piece, const float* factors) {
  if constexpr (kVector) {
    rescale_piece(piece, kOutStride, factors);
  } else {
    rescale_elements(piece, kOutStride, factors);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    vector_io_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
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
  fetch<kRows>(queries, q + block, seq - first_row);
  clear_piece(piece, kOutStride);

  RowState state[kRowsOfWarp];  // of this warp's rows in the softmax

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;
    const std::size_t tile = head + static_cast<std::size_t>(first) * kHeadDim;
    fetch<kKeys>(keys, k + tile, left);
    fetch<kKeys>(values, v + tile, left);
    __syncthreads();  // the tile is complete (and at first the queries and zeros)

    // phase: scores
    score_tile<kRows, kKeys, kHeadDim, kWarps>(scores, kScoreStride, queries, keys, kStride);
    __syncthreads();  // products are complete

    // phase: softmax
    warp_softmax_rows<kKeys>(state, weights, kWeightStride, factors, scores, kScoreStride, scale_log2e, left);
    __syncthreads();  // weights and factors are complete

    rescale(piece, factors + piece_row);
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
  const auto factor = [&](int row) { return factors[row]; };
  if constexpr (kVector) {
    store_rows<kRows, kHeadDim, kOutStride, kThreads>(out + block, kHeadDim, output, seq - first_row, factor);
  } else {
    store_elements<kRows, kHeadDim, kOutStride, kThreads>(out + block, kHeadDim, output, seq - first_row, factor);
  }
}

namespace {

constexpr Forward forward = {vector_io_kernel, "vector_io_kernel", kRows, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
