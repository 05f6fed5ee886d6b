// split_keys: the warps of a block share its rows and split the keys. BLOCK_M, BLOCK_N, GROUPS.
//
// Compared with register_o: 32 query rows per block instead of 64, and 8 warps instead of 4: 2 stripes times
// 4 groups of keys. In every turn a group processes its BLOCK_N of the keys that the block has loaded, with
// its own running maximum, sum and output. So a warp's chain of dependent steps is a quarter as long, and
// there are twice as many blocks: 128 for 132 SMs on the mission shape instead of 64.
//
// At the end the groups are rescaled to one maximum, normalized, and added up through shared memory, in the
// space of K and V, always in the same order: repeats are bit-equal. A group without keys (S smaller than a
// turn) has the maximum "no key" and the factor 0.
//
// K and V are read from L2 twice as often as with 64 rows: the lower latency on a small grid may cost time
// on a large one.
//
// From: no design document; the remaining step when design 004's kernel is limited by the length of one
// warp's work and by a grid that fills only half of the chip.

#include <attention/async_stages.cuh>
#include <attention/forward.cuh>
#include <attention/shared_memory.cuh>
#include <attention/stripe.cuh>
#include <attention/stripe_fragments.cuh>

#ifndef BLOCK_M
#define BLOCK_M 32
#endif
#ifndef BLOCK_N
#define BLOCK_N 32
#endif
#ifndef GROUPS
#define GROUPS 4
#endif

namespace {

using namespace attention;

constexpr int kRows = BLOCK_M;
constexpr int kKeys = BLOCK_N;           // of one group per turn
constexpr int kGroups = GROUPS;
constexpr int kTurn = kGroups * kKeys;   // keys of all groups per turn
constexpr int kStages = 2;
constexpr int kStripes = kRows / kMma;
constexpr int kWarps = kStripes * kGroups;
constexpr int kThreads = kWarps * kWarp;
constexpr int kOutputs = kMma * kOutStride;  // floats of one warp's output, at the end

static_assert(kRows % kMma == 0 && kThreads <= 1024, "BLOCK_M: a multiple of 16; BLOCK_M / 16 * GROUPS warps");

using Stages = AsyncStages<kTurn, kStages, kThreads>;  // a tile is what all groups process per turn
constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kStride * 2);
constexpr int kValuesAt = after(kKeysAt, Stages::kBytes);
constexpr int kWeightsAt = after(kValuesAt, Stages::kBytes);
constexpr int kFactorsAt = after(kWeightsAt, kWarps * Stripe<kKeys>::kElements * 2);
constexpr int kStatesAt = after(kFactorsAt, kWarps * kMma * 4);
constexpr int kSharedBytes = after(kStatesAt, kWarps * kMma * 8);
constexpr int kOutputsAt = kKeysAt;
static_assert(kWarps * kOutputs * 4 <= kWeightsAt - kOutputsAt, "the outputs of all groups take the space of K and V");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    split_keys_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                      half* __restrict__ out, int seq, float scale_log2e) {
  float2* states = shared_at<float2>(kStatesAt);  // (m, l) of each group's rows
  float* outputs = shared_at<float>(kOutputsAt);

  // This warp's stripe and its share of the keys.
  const int warp = threadIdx.x / kWarp;
  const int stripe = warp % kStripes;
  const int group = warp / kStripes;
  half* queries = shared_at<half>(kQueriesAt) + stripe * kMma * kStride;
  half* weights = shared_at<half>(kWeightsAt) + warp * Stripe<kKeys>::kElements;
  float* factors = shared_at<float>(kFactorsAt) + warp * kMma;

  const int first_row = blockIdx.x * kRows;
  const std::size_t head = head_offset(seq);
  const std::size_t block = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const Stages stages(shared_at<half>(kKeysAt), shared_at<half>(kValuesAt), k + head, v + head, seq);

  // phase: load
  load_rows_async<kRows, kHeadDim, kStride, kThreads>(shared_at<half>(kQueriesAt), q + block, kHeadDim,
                                                      seq - first_row);  // with those of turn 0
  for (int turn = 0; turn < kStages - 1; ++turn) stages.fetch(turn);

  RowState state;
  Accumulator o[kOutPieces];
  clear_fragments(o);

  for (int turn = 0; turn < stages.tiles; ++turn) {
    wait_copies<kStages - 2>();        // this turn's copies have landed
    __syncthreads();                   // all threads' have, and all have read the previous turn's
    stages.fetch(turn + kStages - 1);  // into the previous turn's stage

    // phase: scores
    const int own = group * kKeys * kStride;
    Accumulator c[kKeys / kMma];
    stripe_scores(c, queries, stages.keys_of(turn) + own, kStride);
    // phase: softmax
    const int left = seq - turn * kTurn - group * kKeys;  // may be negative: then all are masked
    scale_fragments(o, factors, stripe_weights<kKeys>(state, weights, c, scale_log2e, left));
    // phase: output
    stripe_values<kKeys>(o, weights, Stripe<kKeys>::kPitch, stages.values_of(turn) + own, kStride);
    __syncwarp();  // weights and factors have been read
  }

  // phase: combine
  // One maximum and one sum for all groups of a stripe.
  const int lane = threadIdx.x % kWarp;
  state.l += __shfl_xor_sync(kAllLanes, state.l, kMma);
  if (lane < kMma) states[warp * kMma + lane] = make_float2(state.m, state.l);
  __syncthreads();  // all states are written, and K and V have been read
  RowState whole;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const float2 other = states[(g * kStripes + stripe) * kMma + lane % kMma];
    whole.raise(other.x);
    whole.add(other.y * whole.weight(other.x));
  }
  scale_fragments(o, factors, whole.weight(state.m) * whole.normaliser());

#pragma unroll
  for (int j = 0; j < kOutPieces; ++j) {
    nvcuda::wmma::store_matrix_sync(outputs + warp * kOutputs + j * kMma, o[j], kOutStride,
                                    nvcuda::wmma::mem_row_major);
  }
  __syncthreads();  // all groups' outputs are written

  constexpr int kPieces = kHeadDim / 8;  // of a row
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int col = i % kPieces * 8;
    if (row >= seq - first_row) continue;
    float sum[8] = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const float* from = outputs + (g * kStripes + row / kMma) * kOutputs + row % kMma * kOutStride + col;
#pragma unroll
      for (int c = 0; c < 8; c += 4) {
        const float4 x = *reinterpret_cast<const float4*>(from + c);
        sum[c] += x.x;
        sum[c + 1] += x.y;
        sum[c + 2] += x.z;
        sum[c + 3] += x.w;
      }
    }
    store_half8_global(out + block + row * kHeadDim + col, to_half8(sum));
  }
}

namespace {

constexpr Forward forward = {split_keys_kernel, "split_keys_kernel", kRows, kThreads, kSharedBytes};

}  // namespace

FLASHCORE_VARIANT(forward.plan, forward.launch)
