// The bulk copy engine: global to shared memory and back, bypassing registers. sm_90 and later.
//
// One thread requests a whole tile; a barrier in shared memory counts the arrived bytes. Addresses and sizes are
// multiples of 16 bytes.
#pragma once

#include <cstdint>

namespace roofs {

// A barrier for one bulk load. Call `fence_barriers` once after the last one.
__device__ inline void init_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// Makes initialized barriers visible to the copy engine.
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Requests `bytes` from global memory; the barrier's phase ends when all of them have arrived.
__device__ inline void load_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Waits for the end of the barrier's first phase.
__device__ inline void wait_barrier(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

// Makes this thread's stores to shared memory visible to the copy engine; a barrier of the block must follow.
__device__ inline void fence_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts storing `bytes` of shared memory.
__device__ inline void store_bulk(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the shared memory being stored may be reused.
__device__ inline void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// The dynamic shared memory, in bytes, with which exactly `blocks` blocks fit on an SM of sm_90 (228 KiB); each block
// has less than 128 bytes of static shared memory, and the system uses 1 KiB.
constexpr unsigned shared_bytes_for(unsigned blocks) { return (228u * 1024 / blocks - 1024 - 128) / 128 * 128; }

}  // namespace roofs
