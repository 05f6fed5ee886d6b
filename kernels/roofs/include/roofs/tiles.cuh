// How the streaming kernels divide memory among blocks: tile t of 32 KiB belongs to block t mod blocks.
//
// This is independent of the loads in flight, so every variant reads the same bytes in the same block, and one
// answer serves them all. Adjacent blocks read adjacent tiles, which keeps DRAM pages open.
#pragma once

#include <flashcore/launch.h>

#include <cstdint>

namespace roofs {

constexpr int kStreamThreads = 256;
constexpr int kTileVectorsOfThread = 8;  // 16-byte vectors
constexpr int kTileVectors = kStreamThreads * kTileVectorsOfThread;
constexpr int kTileWords = kTileVectors * 4;

inline const char* refuse_partial_tiles(std::int64_t words) {
  return words % kTileWords == 0 ? nullptr : "WORDS must be a multiple of 8192: whole tiles of 32 KiB";
}

// For kernels with one block per tile: a row of clocks for each tile.
inline const char* refuse_other_blocks(std::int64_t words, std::int64_t blocks) {
  return words == blocks * kTileWords ? nullptr : "WORDS must be 8192 times BLOCKS: a block for each tile of 32 KiB";
}

}  // namespace roofs
