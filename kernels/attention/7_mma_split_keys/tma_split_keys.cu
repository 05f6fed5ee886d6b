// tma_split_keys: mma_split_keys without its warps waiting for each other. The same macros.
//
// In mma_split_keys the 8 warps run in lockstep: all load, all multiply, all take exponentials, all multiply
// again. While one unit works the others are idle, and the phases add up. New here:
//
//   - Tiles come by bulk tensor copies: a lane requests a tile and continues. They replace 33 cp.async per
//     thread and their address arithmetic; at S = 512 a warp executes 1,157 instructions, not 1,367.
//   - A warp's 64 keys are two halves, and products of one overlap exponentials of the other:
//     Q·Kᵀ of b | weights of a, then P·V of a | weights of b. Only their order expresses this; the compiler
//     interleaves independent instructions within a straight-line block.
//   - Weights are relative to the largest score of the *first* half, which is available while the second is
//     still being multiplied. Any reference works if weights stay within a half's range, so the second half
//     raises it only if it is more than 2^8 larger: rarely, and then everything is rescaled.
//   - PROGRAMMATIC 1: programmatic dependent launch. The block sets up before its predecessor has ended, and
//     waits for it before the first copy.
//
// K's buffer is refilled as soon as the scores are computed, V's after P·V; each half has a barrier per warp.
// Past S = 512 a block loops once per 512 keys.
//
// From: no design document; motivated by the stall reasons of mma_split_keys.

#include <attention/mma_stripe.cuh>
#include <attention/part.cuh>
#include <attention/shared_memory.cuh>
#include <attention/split_keys_sizes.cuh>
#include <attention/tensor_copy.cuh>

namespace {

using namespace attention;

using Layout = Swizzled;  // the layout of bulk tensor copies with rows of 128 bytes
constexpr int kStripes = STRIPES;
constexpr int kRows = kStripes * kMmaRows;
constexpr int kKeys = KEYS;  // per warp and pass
constexpr int kHalf = kKeys / 2;
constexpr int kWarps = WARPS;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPass = kWarps * kKeys;
constexpr int kTile = kKeys * kHeadDim;
constexpr int kTileBytes = kTile * 2;
constexpr int kHalfTile = kTile / 2;

using Scores = ScoreTile<kStripes, kHalf>;

// How far, in powers of two, a score may exceed the reference of the weights. A weight is then at most 256, and
// a row's sum over a pass's 64 keys at most 16,384: within a half's range, and as exact as below 1.
constexpr float kSlack = 8.0f;

// Tiles with the 128-byte swizzle start at multiples of 1,024 bytes. So does dynamic shared memory if the kernel
// has no static shared memory.
constexpr int kTilesAt = 0;  // [warp][K, V]; a warp's part of O replaces them
constexpr int kQueriesAt = kTilesAt + kWarps * 2 * kTileBytes;
constexpr int kStatesAt = after(kQueriesAt, kRows * kRowBytes);
constexpr int kBarriersAt = after(kStatesAt, 2 * kWarps * kRows * 4);
constexpr int kSharedBytes = after(kBarriersAt, (1 + 4 * kWarps) * sizeof(Barrier));
static_assert(kRows * kHeadDim * 4 <= 2 * kTileBytes, "a warp's part of O lies in its K and V buffers");
static_assert(kKeys % 32 == 0, "KEYS: two halves of whole steps");

// Lets the successor start, or waits for the predecessor's end and its writes.
__device__ __forceinline__ void release_successor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void await_predecessor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The largest of this lane's scores of row g (h = 0) or g + 8 of a stripe.
__device__ __forceinline__ float own_top(const float (&s)[kHalf / kMmaCols][4], int h, float scale) {
  float even = s[0][2 * h], odd = s[0][2 * h + 1];
#pragma unroll
  for (int j = 1; j < kHalf / kMmaCols; ++j) {
    even = fmaxf(even, s[j][2 * h]);
    odd = fmaxf(odd, s[j][2 * h + 1]);
  }
  return fmaxf(even, odd) * scale;
}

// Products become weights relative to the state's m, in place.
__device__ __forceinline__ void weigh_half(RowPair (&state)[kStripes], Scores& s, float scale) {
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int j = 0; j < kHalf / kMmaCols; ++j) {
        s[i][j][2 * h] = fast_exp2(fmaf(s[i][j][2 * h], scale, -state[i].m[h]));
        s[i][j][2 * h + 1] = fast_exp2(fmaf(s[i][j][2 * h + 1], scale, -state[i].m[h]));
        even += s[i][j][2 * h];
        odd += s[i][j][2 * h + 1];
      }
      state[i].l[h] += even + odd;
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    tma_split_keys_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                          const __grid_constant__ CUtensorMap v, half* __restrict__ out, int seq, float scale_log2e,
                          unsigned flip) {
  // phase: load
  half* queries = shared_at<half>(kQueriesAt);
  float* maxima = shared_at<float>(kStatesAt);  // [warp][row]
  float* sums = maxima + kWarps * kRows;

  const int lane = threadIdx.x % kWarp;
  // Broadcast from one lane, so that the compiler knows that a warp's barriers and tiles are uniform.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0);
  half* keys = shared_at<half>(kTilesAt + warp * 2 * kTileBytes);
  half* values = keys + kTile;
  Barrier* queries_here = shared_at<Barrier>(kBarriersAt);
  Barrier* keys_here = queries_here + 1 + 4 * warp;  // [half]
  Barrier* values_here = keys_here + 2;

  const int first_row = blockIdx.x * kRows;
  const int head = blockIdx.y;

  // Half of this warp's rows of a pass that starts at key `first`; nothing if it has none there.
  const auto fetch = [&](half* tile, const CUtensorMap& map, int first, int which, Barrier* here) {
    const int mine = first + warp * kKeys;
    if (lane == 0 && mine < seq) {
      arrive_expecting(here + which, kTileBytes / 2);
      copy_tile(tile + which * kHalfTile, map, mine + which * kHalf, head, here + which);
    }
  };
  const auto fetch_both = [&](half* tile, const CUtensorMap& map, int first, Barrier* here) {
    fetch(tile, map, first, 0, here);
    fetch(tile, map, first, 1, here);
  };

  if (threadIdx.x == kThreads - kWarp) {  // the last warp, which has the least to do here
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      init_barrier(keys_here + i, 1);
      init_barrier(values_here + i, 1);
    }
    if (warp == 0) init_barrier(queries_here, 1);
    publish_barriers();
    await_predecessor();
    if (warp == 0) {
      arrive_expecting(queries_here, kRows * kRowBytes);
      copy_tile(queries, q, first_row, head, queries_here);
    }
  }
  // All warps request tiles in the order of their use, since tiles arrive one after another.
  fetch(keys, k, 0, 0, keys_here);
  release_successor();
  __syncthreads();  // all may wait for the queries
  fetch(keys, k, 0, 1, keys_here);
  fetch_both(values, v, 0, values_here);

  QueryOperand<kStripes> a;
  OutputTile<kStripes> o;
  RowPair state[kStripes];
  clear<kStripes>(o);

  if (warp * kKeys < seq) {
    wait(queries_here, 0);
    wait(keys_here, 0);
    load_queries<Layout, kStripes>(a, queries, 0);
    if (__builtin_expect(flip != 0, 0)) flip_queries<kStripes>(a, flip);

    unsigned parity = 0;
    for (int first = 0;;) {
      const int left = seq - first - warp * kKeys;  // of this warp's keys, uniform in the warp
      // phase: scores
      Scores s, t;                                  // of the first half, of the second
      multiply_keys<Layout, kStripes, kHalf>(s, a, keys);
      if (__builtin_expect(left < kHalf, 0)) mask_scores<kStripes, kHalf>(s, left);
      // phase: softmax
      float factor[kStripes][2];  // the factor for the previous passes
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float raised = fmaxf(state[i].m[h], warp_max<4>(own_top(s[i], h, scale_log2e)));
          factor[i][h] = fast_exp2(state[i].m[h] - raised);
          state[i].m[h] = raised;
          state[i].l[h] *= factor[i][h];
        }
      }

      // phase: scores
      wait(keys_here + 1, parity);
      multiply_keys<Layout, kStripes, kHalf>(t, a, keys + kHalfTile);
      // phase: softmax
      weigh_half(state, s, scale_log2e);

      if (__builtin_expect(left < kKeys, 0)) mask_scores<kStripes, kHalf>(t, left - kHalf);
      bool above = false;
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) above |= own_top(t[i], h, scale_log2e) > state[i].m[h] + kSlack;
      }
      if (__builtin_expect(__any_sync(kAllLanes, above), 0)) {
#pragma unroll
        for (int i = 0; i < kStripes; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float raised = fmaxf(state[i].m[h], warp_max<4>(own_top(t[i], h, scale_log2e)));
            const float f = fast_exp2(state[i].m[h] - raised);
            state[i].m[h] = raised;
            state[i].l[h] *= f;
            factor[i][h] *= f;
#pragma unroll
            for (int j = 0; j < kHalf / kMmaCols; ++j) {
              s[i][j][2 * h] *= f;
              s[i][j][2 * h + 1] *= f;
            }
          }
        }
      }
      if (__builtin_expect(first > 0, 0)) {
#pragma unroll
        for (int i = 0; i < kStripes; ++i) {
#pragma unroll
          for (int j = 0; j < kOutCols; ++j) {
#pragma unroll
            for (int r = 0; r < 4; ++r) o[i][j][r] *= factor[i][r / 2];
          }
        }
      }
      // phase: load
      __syncwarp();  // K has been read
      fetch_both(keys, k, first + kPass, keys_here);

      wait(values_here, parity);
      // phase: output
      multiply_values<Layout, kStripes, kHalf>(o, s, values);
      // phase: softmax
      weigh_half(state, t, scale_log2e);
      // phase: output
      wait(values_here + 1, parity);
      multiply_values<Layout, kStripes, kHalf>(o, t, values + kHalfTile);

      if (__builtin_expect(left <= kPass, 1)) break;  // this warp has no keys in a later pass
      // phase: load
      __syncwarp();  // V has been read
      fetch_both(values, v, first + kPass, values_here);
      first += kPass;
      parity ^= 1;
      wait(keys_here, parity);
    }
    __syncwarp();  // nothing is in flight into K's buffer, and all have read it
  }

  // phase: other
  // This warp's part: O, m, l. A warp without keys leaves zeros, and −inf for m.
  float* part = reinterpret_cast<float*>(keys);
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
    state[i].sum_lanes();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = i * kMmaRows + h * 8 + lane / 4;
      if (lane % 4 == 0) {
        maxima[warp * kRows + row] = state[i].m[h];
        sums[warp * kRows + row] = state[i].l[h];
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) store_part_row(part, i * kMmaRows + h * 8 + lane / 4, o[i], h);
  }
  __syncthreads();  // all parts are complete

  // Eight threads per row, relative to the largest m; always in the same order: bit-equal answers.
  for_each_piece<kRows * 8, kThreads>([&](unsigned piece) {
    const int row = piece / 8;
    const int col = piece % 8 * 4;  // to col + 3, and 32 columns further
    if (row >= seq - first_row) return;
    float factor[kWarps];
    float top = kMasked, l = 0.0f;  // the largest m is finite: warp 0 has a key
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factor[w] = maxima[w * kRows + row];
      top = fmaxf(top, factor[w]);
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factor[w] = fast_exp2(factor[w] - top);  // 0 for a warp without keys, whose part is 0
      l = fmaf(sums[w * kRows + row], factor[w], l);
    }
    float sum[8] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float* from = shared_at<float>(kTilesAt + w * 2 * kTileBytes);
      const float4 low = *reinterpret_cast<const float4*>(from + part_at(row, col));
      const float4 high = *reinterpret_cast<const float4*>(from + part_at(row, col + kHeadDim / 2));
      const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] = fmaf(x[c], factor[w], sum[c]);
    }
    const float f = fast_reciprocal(l);
    half* target = out + head_offset(seq) + static_cast<std::size_t>(first_row + row) * kHeadDim + col;
#pragma unroll
    for (int c = 0; c < 8; c += 4) {
      *reinterpret_cast<uint2*>(target + c / 4 * (kHeadDim / 2)) =
          make_uint2(pack_halves(sum[c] * f, sum[c + 1] * f), pack_halves(sum[c + 2] * f, sum[c + 3] * f));
    }
  });
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  flashcore::Launch l = {"tma_split_keys_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes};
  l.programmatic = PROGRAMMATIC != 0;
  return p.add(l);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  const PositiveScale scale = positive_scale(a.scale);
  CUtensorMap q, k, v;
  for (const cudaError_t error : {describe(q, a.q, s, kRows), describe(k, a.k, s, kHalf), describe(v, a.v, s, kHalf)}) {
    if (error != cudaSuccess) return error;
  }
  return flashcore::run(p.launches[0], tma_split_keys_kernel, stream, q, k, v, static_cast<half*>(a.out),
                        static_cast<int>(s.S), scale.log2e, scale.flip);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
