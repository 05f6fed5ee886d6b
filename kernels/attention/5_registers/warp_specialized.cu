// warp_specialized: two warps load, four compute; barriers in shared memory. STAGES.
//
// Compared with xor_swizzle, where every warp stops at a block-wide barrier per tile and copies between
// computing: here warp 4 loads K and warp 5 loads V, as far ahead as there are stages, and the four
// computing warps never wait for each other. A stage of K (and one of V) has two barriers:
//
//   full   32 arrivals, one per lane of the loading warp, made by the hardware when its copies land
//   empty  128 arrivals, one per lane of the computing warps, when it has read the stage. One lane could arrive
//          for its warp, after a __syncwarp(): the same order, but compute-sanitizer's racecheck does not
//          track it and reports every refill of a stage as a hazard
//
// so that scores start when K has landed, independently of V, and K's stage is free before the softmax. There
// is one __syncthreads() per block, after the barriers are initialized, whatever S is.
//
// Layout, products and softmax are xor_swizzle's. A block's rows past the end are computed on zeros, as
// there: no warp leaves the pipeline early.
//
// From: FlashCore design 003, phase 3. Its volatile flags (kv_ready, kv_consumed) are mbarriers here: a flag
// does not guarantee that cp.async's data has landed.

#include <attention/barrier.cuh>
#include <attention/forward.cuh>
#include <attention/mma_stripe.cuh>
#include <attention/shared_memory.cuh>

#ifndef STAGES
#define STAGES 3
#endif

namespace {

using namespace attention;

using Layout = Swizzled;
constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = STAGES;
constexpr int kConsumers = kRows / kMmaRows;      // warps
constexpr int kThreads = (kConsumers + 2) * kWarp;
constexpr int kTile = kKeys * kHeadDim;           // halves per stage of K, or of V

static_assert(kStages >= 1 && kStages <= 8, "STAGES: 1 to 8");

constexpr int kQueriesAt = 0;
constexpr int kKeysAt = after(kQueriesAt, kRows * kHeadDim * 2);
constexpr int kValuesAt = after(kKeysAt, kStages * kTile * 2);
constexpr int kBarriersAt = after(kValuesAt, kStages * kTile * 2);
constexpr int kSharedBytes = after(kBarriersAt, 4 * kStages * 8);

// The stages of K, or of V: a ring in which tile t uses stage t % kStages, for the (t / kStages)-th time.
struct Ring {
  half* tiles;
  Barrier* full;
  Barrier* empty;

  __device__ __forceinline__ half* tile(int t) const { return tiles + t % kStages * kTile; }
  __device__ __forceinline__ void wait_full(int t) const { wait(full + t % kStages, t / kStages % 2); }
  __device__ __forceinline__ void wait_empty(int t) const { wait(empty + t % kStages, t / kStages % 2 ^ 1); }

  // This lane of a computing warp has read tile t.
  __device__ __forceinline__ void release(int t) const { arrive(empty + t % kStages); }
};

// The loop of a loading warp.
__device__ __forceinline__ void fetch_all(const Ring& ring, const half* source, int seq, int tiles) {
  for (int t = 0; t < tiles; ++t) {
    ring.wait_empty(t);
    const int first = t * kKeys;
    load_tile_async<Layout, kKeys, kWarp>(ring.tile(t), source + static_cast<std::size_t>(first) * kHeadDim,
                                          seq - first, threadIdx.x % kWarp);
    arrive_when_copied(ring.full + t % kStages);
  }
  wait_copies<0>();  // a thread must not exit with copies in flight
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    warp_specialized_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                            half* __restrict__ out, int seq, float scale_log2e, unsigned flip) {
  Barrier* barriers = shared_at<Barrier>(kBarriersAt);
  const Ring key_ring = {shared_at<half>(kKeysAt), barriers, barriers + kStages};
  const Ring value_ring = {shared_at<half>(kValuesAt), barriers + 2 * kStages, barriers + 3 * kStages};

  const int warp = threadIdx.x / kWarp;
  const std::size_t head = head_offset(seq);
  const int tiles = (seq + kKeys - 1) / kKeys;

  if (threadIdx.x < kStages) {
    init_barrier(key_ring.full + threadIdx.x, kWarp);
    init_barrier(key_ring.empty + threadIdx.x, kConsumers * kWarp);
    init_barrier(value_ring.full + threadIdx.x, kWarp);
    init_barrier(value_ring.empty + threadIdx.x, kConsumers * kWarp);
  }
  __syncthreads();  // the only block-wide barrier

  // phase: load
  if (warp == kConsumers) {
    fetch_all(key_ring, k + head, seq, tiles);
    return;
  }
  if (warp == kConsumers + 1) {
    fetch_all(value_ring, v + head, seq, tiles);
    return;
  }

  // This warp's stripe. It loads its own queries.
  const int row = warp * kMmaRows;
  const int first_row = blockIdx.x * kRows + row;
  const std::size_t stripe = head + static_cast<std::size_t>(first_row) * kHeadDim;
  const bool any = first_row < seq;
  half* queries = shared_at<half>(kQueriesAt) + row * kHeadDim;
  load_tile_async<Layout, kMmaRows, kWarp>(queries, any ? q + stripe : q, seq - first_row, threadIdx.x % kWarp);
  commit_copies();
  wait_copies<0>();
  __syncwarp();

  QueryOperand<1> a;
  OutputTile<1> o;
  RowPair state;
  load_queries<Layout, 1>(a, queries, flip);
  clear<1>(o);

  for (int t = 0; t < tiles; ++t) {
    const int left = seq - t * kKeys;
    ScoreTile<1, kKeys> s;
    key_ring.wait_full(t);
    // phase: scores
    multiply_keys<Layout, 1, kKeys>(s, a, key_ring.tile(t));
    key_ring.release(t);
    // phase: softmax
    if (left < kKeys) mask_scores<1, kKeys>(s, left);
    weigh(state, s[0], o[0], scale_log2e);
    // phase: load
    value_ring.wait_full(t);
    // phase: output
    multiply_values<Layout, 1, kKeys>(o, s, value_ring.tile(t));
    value_ring.release(t);
  }

  // phase: other
  __syncwarp();
  store_output<Layout>(any ? out + stripe : out, o[0], state, queries, seq - first_row);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  return plan_forward(s, "warp_specialized_kernel", kRows, kThreads, kSharedBytes);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  const PositiveScale scale = positive_scale(a.scale);
  return flashcore::run(p.launches[0], warp_specialized_kernel, stream, a.q, a.k, a.v, a.out, s.S, scale.log2e,
                        scale.flip);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
