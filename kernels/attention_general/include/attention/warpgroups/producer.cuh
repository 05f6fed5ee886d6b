// The warpgroup that requests tiles.
#pragma once

#include <attention/warpgroups/pipeline.cuh>
#include <attention/hopper/tensor_copy.cuh>

namespace warpgroups {

using namespace hopper;

template <typename C>
__device__ __forceinline__ void produce(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                        const CUtensorMap& v, const Barriers<C>& barriers, uint32_t memory,
                                        unsigned* taken) {
  const auto bring = [&](uint32_t to, const CUtensorMap& map, int row, int head, int batch, uint32_t here) {
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      copy_box(to + panel * C::kPanelBytes, map, panel * kPanelColumns, row, head, batch, here);
    }
  };
  Place<C> place;
  uint32_t q_parity = 1;
  const int block = blockIdx.x, blocks = gridDim.x;
  int next = block;
  for (int round = 0;; ++round) {
    const int position = C::kPersistent == 2 ? next : position_at<C::kPersistent == 1>(round, block, blocks);
    if (C::kPersistent == 2) {
      const int slot = round % 2;
      wait(barriers.position_free(slot), round / 2 % 2 ^ 1);
      shared_positions<C>()[slot] = position;
      arrive(barriers.position_here(slot));
    }
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int batch = tile.head / p.heads, head = tile.head - batch * p.heads;
    const int kv_head = head / p.sharing;
    const int first_of_block = tile.row_tile * C::kRows;
    const int tiles = tiles_brought_to<C>(p, first_of_block);
    // Q's buffer is free when the previous tile has all its scores. By then most stages are free, so fill them first.
    const int queries_after = round == 0 ? 0 : min(C::kStages - 2, tiles - 1);
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      wait(barriers.k_free(place.stage), place.parity ^ 1);
      arrive_expecting(barriers.k_here(place.stage), C::kJoint ? 2 * C::kTileBytes : C::kTileBytes);
      bring(memory + C::kKeysAt + place.stage * C::kTileBytes, k, n * C::kKeys, kv_head, batch, barriers.k_here(place.stage));
      if (n == queries_after) {
#pragma unroll
        for (int c = 0; c < C::kRowGroups; ++c) {
          wait(barriers.q_free(c), q_parity);
          arrive_expecting(barriers.q_here(c), C::kQBytes);
#pragma unroll
          for (int panel = 0; panel < C::kPanels; ++panel) {
            copy_box(memory + c * C::kQBytes + panel * C::kQPanelBytes, q, panel * kPanelColumns,
                     first_of_block + c * C::kRowsOfConsumer, head, batch, barriers.q_here(c));
          }
        }
        q_parity ^= 1;
      }
      if (!C::kJoint) {
        wait(barriers.v_free(place.stage), place.parity ^ 1);
        arrive_expecting(barriers.v_here(place.stage), C::kTileBytes);
      }
      bring(memory + C::kValuesAt + place.stage * C::kTileBytes, v, n * C::kKeys, kv_head, batch,
            C::kJoint ? barriers.k_here(place.stage) : barriers.v_here(place.stage));
      place.next();
    }
    if (C::kPersistent == 2) {
      // Not earlier: another block could start the tile while this one still computes. The full ring hides the latency.
      next = p.order.positions > blocks ? blocks + atomicAdd(taken, 1) : blocks;
    }
  }
}

}  // namespace warpgroups
