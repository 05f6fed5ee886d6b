// K and V of one head in kStages buffers each, filled by cp.async while others are computed.
//
// Tile t is kKeys keys in stage t % kStages. A kernel fetches kStages - 1 tiles before its loop and tile
// t + kStages - 1 in turn t; the kernel decides when it waits, and whether before or after it fetches. The
// queries' copies, started before the first fetch(), are part of tile 0's group.
#pragma once

#include <attention/async_copy.cuh>
#include <attention/head.cuh>

namespace attention {

template <int kKeys, int kStages, int kThreads>
struct AsyncStages {
  static constexpr int kTile = kKeys * kStride;       // halves per stage of K, or of V
  static constexpr int kBytes = kStages * kTile * 2;  // of all stages

  half* keys;  // stage 0
  half* values;
  const half* k;  // the head's first key
  const half* v;
  int seq;
  int tiles;

  __device__ __forceinline__ AsyncStages(half* keys, half* values, const half* k, const half* v, int seq)
      : keys(keys), values(values), k(k), v(v), seq(seq), tiles((seq + kKeys - 1) / kKeys) {}

  // The address of tile `tile` once it has landed.
  __device__ __forceinline__ const half* keys_of(int tile) const { return keys + tile % kStages * kTile; }
  __device__ __forceinline__ const half* values_of(int tile) const { return values + tile % kStages * kTile; }

  // Starts the block's copies of a tile and closes their group; past the last tile, an empty one.
  __device__ __forceinline__ void fetch(int tile) const {
    if (tile < tiles) {
      const int first = tile * kKeys;
      const int stage = tile % kStages * kTile;
      const std::size_t at = static_cast<std::size_t>(first) * kHeadDim;
      load_rows_async<kKeys, kHeadDim, kStride, kThreads>(keys + stage, k + at, kHeadDim, seq - first);
      load_rows_async<kKeys, kHeadDim, kStride, kThreads>(values + stage, v + at, kHeadDim, seq - first);
    }
    commit_copies();
  }
};

}  // namespace attention
