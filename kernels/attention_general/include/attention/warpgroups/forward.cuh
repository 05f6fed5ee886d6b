// The body of a kernel: initializes the barriers, then each warpgroup takes its role.
#pragma once

#include <attention/warpgroups/consumer.cuh>
#include <attention/warpgroups/producer.cuh>

namespace warpgroups {

// Writes `out`, and if requested the natural logarithm of each row's sum of exponentials (`lse`, [B, H, S] floats).
// `taken`: the number of tiles taken, for persistent blocks that take the next free tile; zero when the kernel starts.
template <typename C>
__device__ __forceinline__ void forward(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                        const CUtensorMap& v, void* out, float* lse, unsigned* taken) {
  static_assert(C::kProducer, "without one: in_step.cuh");
  const uint32_t memory = shared_address(shared);
  const Barriers<C> barriers = {memory + C::kBarriersAt};
  // Broadcast from one lane, so that the compiler knows that the value is uniform in the warp.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);

  if (threadIdx.x == 0) {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(barriers.k_here(i), 1);
      init_barrier(barriers.v_here(i), 1);
      init_barrier(barriers.k_free(i), C::kRowGroups * 4);  // one lane per warp
      init_barrier(barriers.v_free(i), C::kRowGroups * 4);
    }
    for (int i = 0; i < C::kRowGroups; ++i) {
      init_barrier(barriers.q_here(i), 1);
      init_barrier(barriers.q_free(i), 4 * C::kKeyGroups);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(barriers.position_here(i), 1);
      init_barrier(barriers.position_free(i), C::kConsumers * 128);  // every lane reads it
    }
    publish_barriers();
  }
  __syncthreads();

  if (warp >= C::kConsumers * 4) {
    give_up_registers<C::kProducerRegisters>();
    if (warp == C::kConsumers * 4 && threadIdx.x % 32 == 0) {
      produce<C>(p, q, k, v, barriers, memory, taken);
    }
  } else {
    take_registers<C::kConsumerRegisters>();
    consume<C>(p, barriers, memory, out, lse, warp / 4);
  }
}

}  // namespace warpgroups
