// What producer and consumers share: the problem, the barriers, the ring of stages.
#pragma once

#include <attention_long/config.cuh>
#include <attention_long/schedule.cuh>
#include <hopper/barrier.cuh>

namespace attention_long {

using namespace hopper;

struct Barriers {
  uint32_t base;
  __device__ uint32_t k_here(int stage) const { return base + 8 * stage; }
  __device__ uint32_t v_here(int stage) const { return base + 8 * (kStages + stage); }
  __device__ uint32_t k_free(int stage) const { return base + 8 * (2 * kStages + stage); }
  __device__ uint32_t v_free(int stage) const { return base + 8 * (3 * kStages + stage); }
  __device__ uint32_t q_here(int group) const { return base + 8 * (4 * kStages + group); }
  __device__ uint32_t q_free(int group) const { return base + 8 * (4 * kStages + kRowGroups + group); }
  __device__ uint32_t position_here(int slot) const { return base + 8 * (4 * kStages + 2 * kRowGroups + slot); }
  __device__ uint32_t position_free(int slot) const { return base + 8 * (4 * kStages + 2 * kRowGroups + 2 + slot); }
};

// A place in the ring of stages, and the parity of the phase in which it is filled.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next(int step = 1) {
    stage += step;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

struct Strides {
  long long batch, head, row;  // elements
};

struct Problem {
  Order order;
  int heads;     // of a batch
  int sharing;   // query heads of a K/V head
  int queries, keys;
  float scale_log2e;
  Strides out;
};

extern __shared__ __align__(1024) char shared[];

__device__ __forceinline__ char* shared_parts() { return shared + kPartsAt; }

__device__ __forceinline__ volatile int* shared_positions() {
  return reinterpret_cast<volatile int*>(shared + kPositionsAt);
}

// Tiles of keys that rows first ... first + rows - 1 see.
__device__ __forceinline__ int tiles_of(const Problem& p, int first, int rows) {
  const int seen = kCausal ? min(p.keys, first + rows) : p.keys;
  return (seen + kKeys - 1) / kKeys;
}

// Tiles that come for a unit: each key group gets as many, so that its stages stay its own.
__device__ __forceinline__ int tiles_brought_to(const Problem& p, int first_of_block) {
  return (tiles_of(p, first_of_block, kRows) + kKeyGroups - 1) / kKeyGroups * kKeyGroups;
}

}  // namespace attention_long
