// unfused_wmma: three kernels, scores and weights in global memory; both products on the tensor cores.
//
// Compared with scalar_multiquery: the two matrix products use WMMA, 16 × 16 × 16 at a time. The softmax
// between them is a separate kernel, so the S × S scores are written to memory and read back:
//
//   unfused_wmma_qk_kernel       S = round16(Q·Kᵀ · scale)     32 × 32 tiles, 4 warps as 2 × 2
//   unfused_wmma_softmax_kernel  P = round16(softmax(S))       one warp per row, in place
//   unfused_wmma_pv_kernel       O = P·V                       32 × 64 tiles, 8 warps as 2 × 4
//
// P overwrites S, so the workspace is one S × S half matrix per head, its sides rounded up to whole tiles:
// tile loads need no bounds check. Padded columns have weight 0 after the softmax; padded rows have scores
// of zeroed queries, which are finite, and their output rows are not stored.
//
// Here the scores are in natural units, including the scale, as a reader of S expects. They must fit a
// half: |q·k · scale| up to 65,504.
//
// From: FlashCore design 001, phase 1.0.

#include <attention/half8.cuh>
#include <attention/head.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>
#include <attention/tile.cuh>
#include <attention/wmma.cuh>

namespace {

using namespace attention;

constexpr int kTile = 32;  // rows and keys
constexpr int kWeightStride = kTile + kPad;
constexpr int kScoreStride = kTile + kPadFloat;

constexpr int kScoreWarps = (kTile / kMma) * (kTile / kMma);
constexpr int kSoftmaxWarps = 4;
constexpr int kOutAcross = kHeadDim / kMma;
constexpr int kOutWarps = (kTile / kMma) * kOutAcross;
static_assert(kTile % kMma == 0 && kHeadDim % kMma == 0, "whole WMMA tiles");

// The side of the padded score matrix.
__host__ __device__ constexpr std::int64_t padded(std::int64_t seq) { return (seq + kTile - 1) / kTile * kTile; }

// The first score of row `row` of this block's head.
__device__ __forceinline__ std::size_t score_row(int row, int seq) {
  const std::size_t side = padded(seq);
  return (blockIdx.y * side + row) * side;
}

}  // namespace

// blockIdx.x enumerates tiles row by row.
extern "C" __global__ void __launch_bounds__(kScoreWarps* kWarp)
    unfused_wmma_qk_kernel(const half* __restrict__ q, const half* __restrict__ k, half* __restrict__ scores,
                           int seq, float scale) {
  constexpr int kThreads = kScoreWarps * kWarp;
  __shared__ alignas(128) half queries[kTile * kStride];
  __shared__ alignas(128) half keys[kTile * kStride];
  __shared__ alignas(128) float products[kTile * kScoreStride];

  // phase: scores
  const int side = static_cast<int>(padded(seq));
  const int tiles = side / kTile;
  const int row = static_cast<int>(blockIdx.x / tiles) * kTile;
  const int key = static_cast<int>(blockIdx.x % tiles) * kTile;
  const std::size_t head = head_offset(seq);

  load_rows<kTile, kHeadDim, kStride, kThreads>(queries, q + head + static_cast<std::size_t>(row) * kHeadDim,
                                                kHeadDim, seq - row);
  load_rows<kTile, kHeadDim, kStride, kThreads>(keys, k + head + static_cast<std::size_t>(key) * kHeadDim, kHeadDim,
                                                seq - key);
  __syncthreads();
  score_tile<kTile, kTile, kHeadDim, kScoreWarps>(products, kScoreStride, queries, keys, kStride);
  __syncthreads();
  // The whole tile, including padding: every byte of the workspace is written.
  store_rows<kTile, kTile, kScoreStride, kThreads>(scores + score_row(row, seq) + key, side, products, kTile,
                                                   [scale](int) { return scale; });
}

// One warp per row, three passes: maximum, sum, weights. A lane reads back only what it wrote itself.
extern "C" __global__ void __launch_bounds__(kSoftmaxWarps* kWarp)
    unfused_wmma_softmax_kernel(half* scores, int seq) {
  // phase: softmax
  const int row = blockIdx.x * kSoftmaxWarps + threadIdx.x / kWarp;
  if (row >= seq) return;  // the whole warp
  const int lane = threadIdx.x % kWarp;
  const int side = static_cast<int>(padded(seq));
  half* own = scores + score_row(row, seq);

  float m = kMasked;
  for (int col = lane * 8; col < side; col += kWarp * 8) {
    float x[8];
    to_floats(load_half8(own + col), x);
#pragma unroll
    for (int i = 0; i < 8; ++i) m = fmaxf(m, mask_tail(x[i], i, seq - col));
  }
  m = warp_max(m);  // finite: the row has at least one key

  constexpr float kToBase2 = static_cast<float>(kLog2E);
  float l = 0.0f;
  for (int col = lane * 8; col < side; col += kWarp * 8) {
    float x[8];
    to_floats(load_half8(own + col), x);
#pragma unroll
    for (int i = 0; i < 8; ++i) l += fast_exp2((mask_tail(x[i], i, seq - col) - m) * kToBase2);
  }
  const float normaliser = __frcp_rn(warp_sum(l));  // l is at least 1: the largest score weighs 1

  for (int col = lane * 8; col < side; col += kWarp * 8) {
    float x[8];
    to_floats(load_half8(own + col), x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fast_exp2((mask_tail(x[i], i, seq - col) - m) * kToBase2) * normaliser;
    store_half8(own + col, to_half8(x));
  }
}

extern "C" __global__ void __launch_bounds__(kOutWarps* kWarp)
    unfused_wmma_pv_kernel(const half* __restrict__ weights, const half* __restrict__ v, half* __restrict__ out,
                           int seq) {
  constexpr int kThreads = kOutWarps * kWarp;
  __shared__ alignas(128) half p_tile[kTile * kWeightStride];
  __shared__ alignas(128) half v_tile[kTile * kStride];
  __shared__ alignas(128) float o_tile[kTile * kOutStride];

  // phase: output
  const int side = static_cast<int>(padded(seq));
  const int first_row = blockIdx.x * kTile;
  const std::size_t head = head_offset(seq);
  const half* own_weights = weights + score_row(first_row, seq);
  const int warp = threadIdx.x / kWarp;
  const int row = warp / kOutAcross * kMma;  // first row of the warp's 16 × 16 output piece tile
  const int col = warp % kOutAcross * kMma;

  Accumulator o;
  nvcuda::wmma::fill_fragment(o, 0.0f);
  for (int first = 0; first < seq; first += kTile) {
    load_rows<kTile, kTile, kWeightStride, kThreads>(p_tile, own_weights + first, side, kTile);
    load_rows<kTile, kHeadDim, kStride, kThreads>(v_tile, v + head + static_cast<std::size_t>(first) * kHeadDim,
                                                  kHeadDim, seq - first);
    __syncthreads();  // both tiles are complete
    multiply<kTile>(o, p_tile + row * kWeightStride, kWeightStride, v_tile + col, kStride);
    __syncthreads();  // both have been read
  }
  nvcuda::wmma::store_matrix_sync(o_tile + row * kOutStride + col, o, kOutStride, nvcuda::wmma::mem_row_major);
  __syncthreads();
  store_rows<kTile, kHeadDim, kOutStride, kThreads>(out + head + static_cast<std::size_t>(first_row) * kHeadDim,
                                                    kHeadDim, o_tile, seq - first_row, [](int) { return 1.0f; });
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  if (s.S > 65536) {
    p.error = "expected S up to 65,536: this variant keeps the S x S scores of every head in memory";
    return p;
  }
  const std::int64_t side = padded(s.S);
  const unsigned tiles = flashcore::ceil_div(side, kTile);
  const unsigned heads = static_cast<unsigned>(s.B * s.H);
  p.workspace_bytes = static_cast<std::size_t>(s.B * s.H) * side * side * sizeof(half);
  p.add({"unfused_wmma_qk_kernel", dim3(tiles * tiles, heads), dim3(kScoreWarps * kWarp)});
  p.add({"unfused_wmma_softmax_kernel", query_grid(s, kSoftmaxWarps), dim3(kSoftmaxWarps * kWarp)});
  p.add({"unfused_wmma_pv_kernel", query_grid(s, kTile), dim3(kOutWarps * kWarp)});
  return p;
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  cudaError_t error =
      flashcore::run(p.launches[0], unfused_wmma_qk_kernel, stream, a.q, a.k, workspace, s.S, a.scale);
  if (error != cudaSuccess) return error;
  error = flashcore::run(p.launches[1], unfused_wmma_softmax_kernel, stream, workspace, s.S);
  if (error != cudaSuccess) return error;
  return flashcore::run(p.launches[2], unfused_wmma_pv_kernel, stream, workspace, a.v, a.out, s.S);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
