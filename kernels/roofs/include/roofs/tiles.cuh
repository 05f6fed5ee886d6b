// How the streaming kernels share memory among blocks: tile t is block (t mod blocks)'s, unless SPREAD.
//
// A tile is 32 KiB, whatever the number of loads in flight, so every variant reads the same bytes in
// the same block and one answer serves them all. Blocks side by side read side by side, which keeps
// DRAM pages open. (SPREAD 1, for comparison: each block has a run of tiles of its own.)
#pragma once

#include <flashcore/launch.h>

#include <cstdint>

namespace roofs {

constexpr int kStreamThreads = 256;
constexpr int kTileVectorsOfThread = 8;  // 16-byte vectors
constexpr int kTileVectors = kStreamThreads * kTileVectorsOfThread;
constexpr int kTileWords = kTileVectors * 4;

// Tiles first, first + step, ... before `end`.
struct Share {
  long long first, end, step;
};

template <bool kSpread>
__device__ Share share(long long tiles) {
  if (!kSpread) return {blockIdx.x, tiles, gridDim.x};
  const long long each = (tiles + gridDim.x - 1) / gridDim.x;
  const long long first = blockIdx.x * each;
  return {first, min(first + each, tiles), 1};
}

inline const char* refuse_partial_tiles(std::int64_t words) {
  return words % kTileWords == 0 ? nullptr : "WORDS must be a multiple of 8192: whole tiles of 32 KiB";
}

}  // namespace roofs
