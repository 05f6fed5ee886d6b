// Data shared by producer and consumers: the problem, the barriers, the ring of stages.
#pragma once

#include <attention/hopper/barrier.cuh>
#include <attention/strides.cuh>
#include <attention/warpgroups/config.cuh>
#include <attention/warpgroups/schedule.cuh>

namespace warpgroups {

using namespace hopper;

template <typename C>
struct Barriers {
  uint32_t base;
  __device__ uint32_t k_here(int stage) const { return base + 8 * stage; }
  __device__ uint32_t v_here(int stage) const { return base + 8 * (C::kStages + stage); }
  __device__ uint32_t k_free(int stage) const { return base + 8 * (2 * C::kStages + stage); }
  __device__ uint32_t v_free(int stage) const { return base + 8 * (3 * C::kStages + stage); }
  __device__ uint32_t q_here(int group) const { return base + 8 * (4 * C::kStages + group); }
  __device__ uint32_t q_free(int group) const { return base + 8 * (4 * C::kStages + C::kRowGroups + group); }
  __device__ uint32_t position_here(int slot) const { return base + 8 * (4 * C::kStages + 2 * C::kRowGroups + slot); }
  __device__ uint32_t position_free(int slot) const { return position_here(2 + slot); }
};

// A position in the ring of stages, and the parity of the phase in which it is filled.
template <typename C>
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next(int step = 1) {
    stage += step;
    if (stage >= C::kStages) {
      stage -= C::kStages;
      parity ^= 1;
    }
  }
};

struct Problem {
  Order order;
  int heads;    // per batch
  int sharing;  // query heads per K/V head
  int queries, keys;
  int ahead;  // row r sees keys before r + ahead: 1 if causal, else the number of keys
  float scale_log2e;
  attention::Strides out;
};

extern __shared__ __align__(1024) char shared[];

template <typename C>
__device__ __forceinline__ volatile int* shared_positions() {
  return reinterpret_cast<volatile int*>(shared + C::kPositionsAt);
}

// The number of keys that row `row` sees.
__device__ __forceinline__ int keys_seen(const Problem& p, int row) { return min(p.keys, row + p.ahead); }

// Tiles of keys that rows up to `last` see.
template <typename C>
__device__ __forceinline__ int tiles_to(const Problem& p, int last) {
  return (keys_seen(p, last) + C::kKeys - 1) / C::kKeys;
}

// Tiles loaded for a block's rows: the same number for each key group, so that groups do not share stages.
template <typename C>
__device__ __forceinline__ int tiles_brought_to(const Problem& p, int first_of_block) {
  const int tiles = tiles_to<C>(p, first_of_block + C::kRows - 1);
  return (tiles + C::kKeyGroups - 1) / C::kKeyGroups * C::kKeyGroups;
}

}  // namespace warpgroups
