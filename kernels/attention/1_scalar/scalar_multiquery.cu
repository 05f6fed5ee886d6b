// scalar_multiquery: several query rows per block share each K/V tile; still scalar.
//
// Compared with scalar_row: a block processes 16 query rows instead of one, so K and V are read from L2 once
// per 16 rows; the tile of 32 keys is loaded to shared memory with coalesced 16-byte loads; and reductions
// are warp shuffles, so warps are independent between the two barriers that guard the tile.
//
// A warp has 4 rows. For scores, a lane has one key and multiplies it with all 4 rows: a key is used 4 times
// per read. For the output, a lane has 2 columns. The weights pass between the two through shared memory, 4
// rows of one key as one 16-byte word.
//
// From: FlashCore design 000, its baseline.

#include <attention/forward.cuh>
#include <attention/half8.cuh>
#include <attention/head.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>
#include <attention/tile.cuh>

#ifndef BLOCK_M
#define BLOCK_M 16
#endif

namespace {

using namespace attention;

constexpr int kRows = BLOCK_M;   // query rows per block
constexpr int kRowsOfWarp = 4;   // one float4 of weights per key
constexpr int kKeys = kWarp;     // per tile: a lane scores one
constexpr int kThreads = kRows / kRowsOfWarp * kWarp;
static_assert(kRows % kRowsOfWarp == 0 && kThreads >= kWarp && kThreads <= 1024, "BLOCK_M: a multiple of 4 up to 128");
static_assert(kHeadDim == 2 * kWarp, "a lane owns two columns of the output");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    scalar_multiquery_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                             half* __restrict__ out, int seq, float scale_log2e) {
  __shared__ alignas(16) half keys[kKeys * kStride];
  __shared__ alignas(16) half values[kKeys * kStride];
  __shared__ alignas(16) float queries[kRows * kHeadDim];
  __shared__ alignas(16) float4 weights[kThreads];  // [warp][key], the warp's 4 rows in a word

  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const std::size_t head = head_offset(seq);
  const int first_row = blockIdx.x * kRows;
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;

  // phase: load
  // Rows past the end are zeros: they score 0 everywhere, stay finite and are not stored.
  for (int i = threadIdx.x; i < kRows * kHeadDim; i += kThreads) {
    queries[i] = i / kHeadDim < seq - first_row ? __half2float(q[block + i]) * scale_log2e : 0.0f;
  }

  RowState state[kRowsOfWarp];  // the same numbers in all lanes
  float2 o[kRowsOfWarp] = {};   // columns 2·lane and 2·lane + 1
  const float* own_queries = queries + warp * kRowsOfWarp * kHeadDim;
  float4* own_weights = weights + warp * kKeys;

  for (int first = 0; first < seq; first += kKeys) {
    const int left = seq - first;
    const std::size_t tile = head + static_cast<std::size_t>(first) * kHeadDim;
    load_rows<kKeys, kHeadDim, kStride, kThreads>(keys, k + tile, kHeadDim, left);
    load_rows<kKeys, kHeadDim, kStride, kThreads>(values, v + tile, kHeadDim, left);
    __syncthreads();  // the tile is complete (and at first the queries)

    // phase: scores
    float score[kRowsOfWarp] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 8) {
      float key[8];
      to_floats(load_half8(keys + lane * kStride + d), key);
#pragma unroll
      for (int r = 0; r < kRowsOfWarp; ++r) {
        const float4 low = *reinterpret_cast<const float4*>(own_queries + r * kHeadDim + d);
        const float4 high = *reinterpret_cast<const float4*>(own_queries + r * kHeadDim + d + 4);
        score[r] = fmaf(low.x, key[0], score[r]);
        score[r] = fmaf(low.y, key[1], score[r]);
        score[r] = fmaf(low.z, key[2], score[r]);
        score[r] = fmaf(low.w, key[3], score[r]);
        score[r] = fmaf(high.x, key[4], score[r]);
        score[r] = fmaf(high.y, key[5], score[r]);
        score[r] = fmaf(high.z, key[6], score[r]);
        score[r] = fmaf(high.w, key[7], score[r]);
      }
    }

    // phase: softmax
    float p[kRowsOfWarp];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      score[r] = mask_tail(score[r], lane, left);
      const float factor = state[r].raise(warp_max(score[r]));
      o[r].x *= factor;
      o[r].y *= factor;
      p[r] = state[r].weight(score[r]);
      state[r].add(warp_sum(p[r]));
    }
    own_weights[lane] = make_float4(p[0], p[1], p[2], p[3]);
    __syncwarp();  // the warp's weights are complete; no other warp reads them

    // phase: output
#pragma unroll 8
    for (int j = 0; j < kKeys; ++j) {  // padded keys add 0 · 0
      const float4 w = own_weights[j];
      const float2 value = __half22float2(*reinterpret_cast<const half2*>(values + j * kStride + 2 * lane));
      o[0] = make_float2(fmaf(w.x, value.x, o[0].x), fmaf(w.x, value.y, o[0].y));
      o[1] = make_float2(fmaf(w.y, value.x, o[1].x), fmaf(w.y, value.y, o[1].y));
      o[2] = make_float2(fmaf(w.z, value.x, o[2].x), fmaf(w.z, value.y, o[2].y));
      o[3] = make_float2(fmaf(w.w, value.x, o[3].x), fmaf(w.w, value.y, o[3].y));
    }
    __syncthreads();  // this tile and these weights have been read
  }

  // phase: other
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = warp * kRowsOfWarp + r;
    if (row >= seq - first_row) continue;
    const float f = state[r].normaliser();
    *reinterpret_cast<half2*>(out + block + row * kHeadDim + 2 * lane) = __floats2half2_rn(o[r].x * f, o[r].y * f);
  }
}

namespace {

constexpr Forward forward = {scalar_multiquery_kernel, "scalar_multiquery_kernel", kRows, kThreads};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
