// scalar_row: one block per query row, scalar arithmetic, online softmax.
//
// The first step: attention by its definition, with the one idea that all variants but unfused_wmma share.
// The row of scores is never stored completely; keys come in tiles of 64, and a running maximum and sum
// (softmax.cuh) allow each tile to be folded into the output and discarded.
//
// A thread has two roles: it scores one key of the tile, then accumulates one column of the output. So tile
// and head dimension are both 64, and so is the block. Its limits are left on purpose: each of the S blocks
// of a head reads all of K and V again, a thread's key is 128 bytes away from its neighbor's, and 64 threads
// are only two warps.
//
// From: FlashCore design 003, phase 0.

#include <attention/forward.cuh>
#include <attention/head.cuh>
#include <attention/softmax.cuh>

namespace {

using namespace attention;

constexpr int kThreads = kHeadDim;
constexpr int kKeys = kThreads;  // per tile: a thread scores one
static_assert(kKeys == kHeadDim, "thread t scores key t and then owns column t");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    scalar_row_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e) {
  __shared__ float query[kHeadDim];
  __shared__ float scores[kKeys];
  __shared__ float weights[kKeys];

  const int t = threadIdx.x;
  const std::size_t head = head_offset(seq);
  const std::size_t row = head + static_cast<std::size_t>(blockIdx.x) * kHeadDim;
  // phase: load
  query[t] = __half2float(q[row + t]) * scale_log2e;
  __syncthreads();

  RowState state;  // every thread keeps the row's state: the same values in all of them
  float o = 0.0f;  // column t

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;  // keys, at least 1
    const half* keys = k + head + static_cast<std::size_t>(first) * kHeadDim;
    const half* values = v + head + static_cast<std::size_t>(first) * kHeadDim;

    // phase: scores
    float score = kMasked;
    if (t < left) {
      score = 0.0f;
#pragma unroll 8
      for (int d = 0; d < kHeadDim; ++d) score = fmaf(query[d], __half2float(keys[t * kHeadDim + d]), score);
    }
    scores[t] = score;
    __syncthreads();  // scores are complete; the last tile's weights have been read

    // phase: softmax
    float tile_max = kMasked;
#pragma unroll 8
    for (int j = 0; j < kKeys; ++j) tile_max = fmaxf(tile_max, scores[j]);
    o *= state.raise(tile_max);
    weights[t] = state.weight(score);
    __syncthreads();  // weights are complete; and nobody reads this tile's scores any more

    // phase: output
    const int count = min(kKeys, left);
    float sum = 0.0f;
    for (int j = 0; j < count; ++j) {
      const float p = weights[j];
      sum += p;
      o = fmaf(p, __half2float(values[j * kHeadDim + t]), o);
    }
    state.add(sum);
  }
  // phase: other
  out[row + t] = __float2half_rn(o * state.normaliser());
}

namespace {

constexpr Forward forward = {scalar_row_kernel, "scalar_row_kernel", 1, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
