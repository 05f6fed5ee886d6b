// Without a producer: all warpgroups of a block run in step, tile by tile.
//
// After each tile all threads meet at the block's barrier, and one thread requests the tile that replaces it; a single
// warpgroup also meets when it has its scores, after which the keys that replace them are requested.
// Warpgroups do not wait for each other individually: a variant whose threads did hung (NOTES.md, long rows).
#pragma once

#include <attention/hopper/tensor_copy.cuh>
#include <attention/warpgroups/pipeline.cuh>
#include <attention/warpgroups/products.cuh>
#include <attention/warpgroups/softmax.cuh>
#include <attention/warpgroups/store.cuh>

namespace warpgroups {

template <typename C>
__device__ __forceinline__ void forward_in_step(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                                const CUtensorMap& v, uint16_t* out) {
  static_assert(!C::kProducer && !C::kOverlap && !C::kPingPong && C::kLazy == 0 && C::kKeyGroups == 1 &&
                    !C::kJoint && !C::kPersistent,
                "one technique: both products on warpgroups");
  // One warpgroup alone meets at little cost: K is requested as soon as its scores are there.
  constexpr bool kEarly = C::kConsumers == 1;
  // phase: load
  const uint32_t memory = shared_address(shared);
  const Barriers<C> barriers = {memory + C::kBarriersAt};
  const int lane = threadIdx.x % 32;
  // Broadcast from one lane, so that the compiler knows that the value is uniform in the warp.
  const int consumer = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128, 0);
  const Tile tile = tile_at(p.order, blockIdx.x);
  const int batch = tile.head / p.heads, head = tile.head - batch * p.heads;
  const int first_of_block = tile.row_tile * C::kRows;
  const int first_row = first_of_block + consumer * C::kRowsOfConsumer;
  const int brought = tiles_brought_to<C>(p, first_of_block);
  // The number of keys that this warpgroup's rows see; none if the rows are past the end.
  const int tiles = first_row >= p.queries ? 0 : tiles_to<C>(p, first_row + C::kRowsOfConsumer - 1);
  const int whole = keys_seen(p, first_row) / C::kKeys;  // tiles before this need no mask

  const auto fetch = [&](uint32_t to, const CUtensorMap& map, int panel_bytes, int row, int of_head, uint32_t here) {
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      copy_box(to + panel * panel_bytes, map, panel * kPanelColumns, row, of_head, batch, here);
    }
  };
  const auto fetch_keys = [&](int n) {
    const int stage = n % C::kStages;
    arrive_expecting(barriers.k_here(stage), C::kTileBytes);
    fetch(memory + C::kKeysAt + stage * C::kTileBytes, k, C::kPanelBytes, n * C::kKeys, head / p.sharing,
          barriers.k_here(stage));
  };
  const auto fetch_values = [&](int n) {
    const int stage = n % C::kStages;
    arrive_expecting(barriers.v_here(stage), C::kTileBytes);
    fetch(memory + C::kValuesAt + stage * C::kTileBytes, v, C::kPanelBytes, n * C::kKeys, head / p.sharing,
          barriers.v_here(stage));
  };
  if (threadIdx.x == 0) {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(barriers.k_here(i), 1);
      init_barrier(barriers.v_here(i), 1);
    }
    for (int c = 0; c < C::kConsumers; ++c) init_barrier(barriers.q_here(c), 1);
    publish_barriers();
    for (int c = 0; c < C::kConsumers; ++c) {
      arrive_expecting(barriers.q_here(c), C::kQBytes);
      fetch(memory + c * C::kQBytes, q, C::kQPanelBytes, first_of_block + c * C::kRowsOfConsumer, head,
            barriers.q_here(c));
    }
    for (int n = 0; n < min(C::kStages, brought); ++n) {
      fetch_keys(n);
      fetch_values(n);
    }
  }
  __syncthreads();

  float o[C::kOutputs];
#pragma unroll
  for (int i = 0; i < C::kOutputs; ++i) o[i] = 0.0f;
  Rows rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0.0f, 0.0f}};
  const uint32_t queries = memory + consumer * C::kQBytes;
  const int row = first_row + threadIdx.x / 32 % 4 * 16 + lane / 4;  // and 8 further
  wait(barriers.q_here(consumer), 0);

#pragma unroll 1
  for (int n = 0; n < brought; ++n) {
    const int stage = n % C::kStages;
    const uint32_t parity = n / C::kStages % 2;
    if (n < tiles) {
      // phase: load
      wait(barriers.k_here(stage), parity);
      // phase: scores
      float s[C::kScores];
      products_begin();
      multiply_keys<C>(s, queries, memory + C::kKeysAt + stage * C::kTileBytes);
      products_commit();
      products_wait<0>();
      pin(s);
      // phase: load
      if (kEarly && n + C::kStages < brought) {
        __syncthreads();
        if (threadIdx.x == 0) fetch_keys(n + C::kStages);
      }
      // phase: softmax
      if (n >= whole) {
        const int own = n * C::kKeys + lane % 4 * 2;
        const int limit[2] = {keys_seen(p, row) - 1 - own, keys_seen(p, row + 8) - 1 - own};
        mask<C>(s, limit);
      }
      float factor[2];
      softmax<C, 0>(s, rows, factor, p.scale_log2e);
      rescale_output<C>(o, factor);
      uint32_t w[C::kScores / 2];
      pack_weights<C>(w, s);
      // phase: load
      wait(barriers.v_here(stage), parity);
      // phase: output
      pin(w);
      pin(o);
      products_begin();
      multiply_values<C>(o, w, memory + C::kValuesAt + stage * C::kTileBytes);
      products_commit();
      products_wait<0>();
      pin(o);
      pin(w);
    }
    // phase: load
    __syncthreads();  // all threads have read the tile
    if (threadIdx.x == 0 && n + C::kStages < brought) {
      if (!kEarly) fetch_keys(n + C::kStages);
      fetch_values(n + C::kStages);
    }
  }
  // phase: store
  const float inverse[2] = {1.0f / quad_sum(rows.l[0]), 1.0f / quad_sum(rows.l[1])};
  store_rows<C>(attention::place_of(out, p.out, batch, head, row), p.out.row, o, inverse, row, p.queries, lane);
}

}  // namespace warpgroups
