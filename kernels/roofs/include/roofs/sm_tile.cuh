// Common parts of the kernels that read their own SM's memory: a tile of 64 KiB per block, read repeatedly by
// 1,024 threads, four 16-byte vectors per thread and pass.
#pragma once

#include <flashcore/launch.h>

#include <roofs/checksum.cuh>

#include <cstdint>

namespace roofs {

constexpr int kSmThreads = 1024;
constexpr int kSmVectorsOfThread = 4;
constexpr int kSmTileVectors = kSmThreads * kSmVectorsOfThread;
constexpr int kSmTileBytes = kSmTileVectors * 16;

inline const char* refuse_other_tiles(std::int64_t words) {
  return words * 4 == kSmTileBytes ? nullptr : "WORDS must be 16384: a tile of 64 KiB a block";
}

// Sums the tile `iterations` times. `load(offset)` reads the vector at that byte offset in the tile.
//
// In each pass each warp advances by one position, around the tile's quarter: with equal addresses the compiler
// would read once and add four times (`volatile` on the assembly does not stop ptxas).
template <typename Load>
__device__ Checksum read_again(int iterations, Load load) {
  constexpr uint32_t kQuarter = kSmThreads * 16;
  constexpr uint32_t kWarpBytes = 32 * 16;
  uint32_t offset = threadIdx.x * 16;
  Checksum sum;
#pragma unroll 4
  for (int n = 0; n < iterations; ++n) {
    uint4 v[kSmVectorsOfThread];
#pragma unroll
    for (int i = 0; i < kSmVectorsOfThread; ++i) v[i] = load(offset + i * kQuarter);
#pragma unroll
    for (int i = 0; i < kSmVectorsOfThread; ++i) sum.add(v[i]);
    offset = (offset + kWarpBytes) % kQuarter;
  }
  return sum;
}

}  // namespace roofs
