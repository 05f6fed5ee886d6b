// Who asks for tiles: a producer of its own, or (PRODUCER_WARPS 0) a consumer's thread.
#pragma once

#include <attention_long/pipeline.cuh>
#include <hopper/tensor_copy.cuh>

namespace attention_long {

using namespace hopper;

__device__ __forceinline__ void produce(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                        const CUtensorMap& v, const Barriers& barriers, uint32_t memory,
                                        unsigned* taken) {
  const auto bring = [&](uint32_t to, const CUtensorMap& map, int row, int head, int batch, uint32_t here) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(to + panel * kPanelBytes, map, panel * kPanelColumns, row, head, batch, here);
    }
  };
  Place place;
  uint32_t q_parity = 1;
  const int unit = blockIdx.x, units = gridDim.x;
  int next = unit;
  for (int round = 0;; ++round) {
    const int position = kPersistent == 2 ? next : position_at<kPersistent == 1>(round, unit, units);
    if (kPersistent == 2) {
      const int slot = round % 2;
      wait(barriers.position_free(slot), round / 2 % 2 ^ 1);
      shared_positions()[slot] = position;
      arrive(barriers.position_here(slot));
    }
    if (position >= p.order.positions) break;
    if (kPersistent == 2) next = units + atomicAdd(taken, 1);  // long before it is wanted
    const Tile tile = tile_at(p.order, position);
    const int batch = tile.head / p.heads, head = tile.head - batch * p.heads;
    const int kv_head = head / p.sharing;
    const int first_of_block = tile.row_tile * kRows;
    const int tiles = tiles_brought_to(p, first_of_block);
    // Q's place is free when the tile before has all its scores. By then most stages are free: they are filled first.
    const int queries_after = round == 0 ? 0 : min(kStages - 2, tiles - 1);
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      wait(barriers.k_free(place.stage), place.parity ^ 1);
      arrive_expecting(barriers.k_here(place.stage), kJoint ? 2 * kTileBytes : kTileBytes);
      bring(memory + kKeysAt + place.stage * kTileBytes, k, n * kKeys, kv_head, batch, barriers.k_here(place.stage));
      if (n == queries_after) {
#pragma unroll
        for (int c = 0; c < kRowGroups; ++c) {
          wait(barriers.q_free(c), q_parity);
          arrive_expecting(barriers.q_here(c), kQBytes);
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel) {
            copy_box(memory + c * kQBytes + panel * kQPanelBytes, q, panel * kPanelColumns,
                     first_of_block + c * kRowsOfConsumer, head, batch, barriers.q_here(c));
          }
        }
        q_parity ^= 1;
      }
      if (!kJoint) {
        wait(barriers.v_free(place.stage), place.parity ^ 1);
        arrive_expecting(barriers.v_here(place.stage), kTileBytes);
      }
      bring(memory + kValuesAt + place.stage * kTileBytes, v, n * kKeys, kv_head, batch,
            kJoint ? barriers.k_here(place.stage) : barriers.v_here(place.stage));
      place.next();
    }
  }
  // The last block leaves the counters as it found them: zeros.
  if (kPersistent == 2 && atomicAdd(taken + 1, 1) == units - 1) {
    taken[0] = 0;
    taken[1] = 0;
  }
}

// The same without a producer: a thread of the last consumer, which has most tiles, asks for a tile as soon as the one
// kLag before its own has been given back by all. One tile of rows a block.
constexpr int kLag = kStages > 3 ? kStages / 2 : kStages - 1;

struct Refill {
  const CUtensorMap &k, &v;
  const Barriers& barriers;
  uint32_t memory;
  int kv_head, batch, tiles;
  __device__ void keys(int n, const Place& place) const {
    arrive_expecting(barriers.k_here(place.stage), kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(memory + kKeysAt + place.stage * kTileBytes + panel * kPanelBytes, k, panel * kPanelColumns, n * kKeys,
               kv_head, batch, barriers.k_here(place.stage));
    }
  }
  __device__ void values(int n, const Place& place) const {
    arrive_expecting(barriers.v_here(place.stage), kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(memory + kValuesAt + place.stage * kTileBytes + panel * kPanelBytes, v, panel * kPanelColumns,
               n * kKeys, kv_head, batch, barriers.v_here(place.stage));
    }
  }
};

}  // namespace attention_long
