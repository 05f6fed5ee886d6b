// atomic_o: P·V is added to the output in shared memory with atomics.
//
// Compared with tile_64x64: a warp's product of weights and values starts from zero and is added element by
// element with atomicAdd(), as sketched in design 000, instead of being accumulated by the tensor core into
// the loaded output. Everything else equals tile_64x64.
//
// This requires the position of each fragment slot's element, which WMMA does not specify. It is read from
// the machine once: a 16 × 16 matrix whose entries are their own positions is loaded as an accumulator; slot
// i of the fragment then contains the position of slot i of every accumulator.
//
// Between two barriers each element has one owner, so the order of its sums is fixed and repeats are
// bit-equal. (If a tile's keys were split over several warps, which atomics would permit, they would not
// be.) Shared memory has no fp32 atomic addition in hardware: each is a loop of load, add and
// compare-and-swap.
//
// From: FlashCore design 000, WMMA P @ V. Its sketch covers only columns 0 to 15 of V and has two warps
// add the same product; here each piece of the output belongs to one warp, and all are covered.

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/output_piece.cuh>
#include <attention/tile.cuh>
#include <attention/tile_memory.cuh>
#include <attention/warp_softmax.cuh>
#include <attention/wmma.cuh>

namespace {

using namespace attention;

constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsOfWarp = kRows / kWarps;  // in the softmax
constexpr int kOutAcross = kHeadDim / kMma;
constexpr int kPieces = kRows / kMma * kOutAcross;  // of the output

using Memory = TileMemory<kRows, kKeys>;
constexpr int kScoreStride = Memory::kScoreStride;    // floats
constexpr int kWeightStride = Memory::kWeightStride;  // halves

}  // namespace

// Requests one block per SM; otherwise the compiler spills on sm_89 to fit more blocks.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    atomic_o_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
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

  // Offsets within a piece, as floats (exact), in the space that later contains scores.
  for (int i = threadIdx.x; i < kMma * kMma; i += kThreads) {
    scores[i] = static_cast<float>(i / kMma * kOutStride + i % kMma);
  }
  __syncthreads();
  Accumulator position;
  nvcuda::wmma::load_matrix_sync(position, scores, kMma, nvcuda::wmma::mem_row_major);
  int at[Accumulator::num_elements];
#pragma unroll
  for (int i = 0; i < position.num_elements; ++i) at[i] = static_cast<int>(position.x[i]);

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
    __syncthreads();  // the tile is complete (and at first the queries and zeros; positions have been read)

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
      Accumulator o;
      nvcuda::wmma::fill_fragment(o, 0.0f);
      multiply<kKeys>(o, weights + row * kWeightStride, kWeightStride, values + col, kStride);
#pragma unroll
      for (int i = 0; i < o.num_elements; ++i) atomicAdd(piece + at[i], o.x[i]);
    }
    __syncthreads();  // this tile, its weights and factors have been read; the output is complete
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

constexpr Forward forward = {atomic_o_kernel, "atomic_o_kernel", kRows, kThreads, Memory::kBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
