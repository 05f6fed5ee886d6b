// Which tiles of rows a block computes, and in which order.
//
// A position is a tile's index in the order that all blocks share. Heads are in groups whose K and V fit into L2. In a
// group, rows that see most keys (the last) come first, so that the remaining work at the end is small. Persistent
// blocks traverse the order back and forth (u, 2U-1-u, 2U+u, ...), which balances their work, or each takes the next
// free position; otherwise a block has a single position.
#pragma once

namespace warpgroups {

struct Order {
  int row_tiles;  // per head
  int heads;      // of all batches
  int group;      // heads that stay together
  int positions;  // row_tiles * heads
};

struct Tile {
  int row_tile, head;
};

__device__ __forceinline__ Tile tile_at(const Order& order, int position) {
  const int in_group = order.group * order.row_tiles;
  const int group = position / in_group;
  const int rest = position - group * in_group;
  const int heads = min(order.group, order.heads - group * order.group);
  const int depth = rest / heads;
  return {order.row_tiles - 1 - depth, group * order.group + rest - depth * heads};
}

// A block's position in a round, or a number past the end.
template <bool kPersistent>
__device__ __forceinline__ int position_at(int round, int block, int blocks) {
  if (!kPersistent) return round == 0 ? block : 0x7fffffff;
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

}  // namespace warpgroups
