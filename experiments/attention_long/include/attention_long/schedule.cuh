// Which tiles a block computes, and in which order.
//
// A unit is a block, or a cluster of blocks that share K and V; a position is a tile's place in the order that all
// units share. Heads go in groups whose K and V fit into L2; in a group, rows that see most keys (the last) go first,
// so that what is left over at the end is small. Persistent units walk the order forth and back (u, 2U-1-u,
// 2U+u, ...), which evens out what they get; otherwise a unit has one position, its own.
#pragma once

namespace attention_long {

struct Order {
  int row_tiles;   // of a head
  int heads;       // of all batches
  int group;       // heads that go together
  int positions;   // row_tiles * heads
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

// The unit's position in a round, or a number past the end.
template <bool kPersistent>
__device__ __forceinline__ int position_at(int round, int unit, int units) {
  if (!kPersistent) return round == 0 ? unit : 0x7fffffff;
  return round * units + (round % 2 ? units - 1 - unit : unit);
}

}  // namespace attention_long
