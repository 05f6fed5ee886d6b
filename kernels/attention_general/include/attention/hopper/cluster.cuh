// Clusters: co-resident blocks that can access each other's shared memory.
#pragma once

#include <cstdint>

namespace hopper {

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The address, in the block of that rank, of the object at `address` here.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Publishes nothing: an arrival with release compiles to a membar of the whole GPU. publish_barriers() publishes
// initialized barriers.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Like wait(), and acquires the writes of the cluster's blocks.
__device__ __forceinline__ void wait_for_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Stores into another block's shared memory, counted by that block's barrier.
__device__ __forceinline__ void store_remote(uint32_t to, const uint32_t (&w)[4], uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void store_remote(uint32_t to, float2 v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(v.x), "f"(v.y), "r"(barrier)
               : "memory");
}

}  // namespace hopper
