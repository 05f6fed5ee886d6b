// Barriers in shared memory (mbarrier, sm_80+): warps wait for an event, not for all other warps.
//
// A barrier is a 64-bit word that expects a number of arrivals. After these its phase ends and the next one
// begins. Waiting for the end of phase 0, 1, 2, … uses its parity: 0, 1, 0, … Waiting for parity 1 on a
// fresh barrier returns at once: the phase "before the first" counts as ended. Arriving releases the
// thread's previous writes, waiting acquires them.
#pragma once

#include <attention/shared_memory.cuh>

#include <cstdint>

namespace attention {

using Barrier = std::uint64_t;

// Called by one thread; after a __syncthreads() the barrier may be used.
__device__ __forceinline__ void init_barrier(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
               : "memory");
}

// Arrives when all cp.async that this thread has started have landed, without blocking the thread. This is
// one of the arrivals that the barrier expects (.noinc).
__device__ __forceinline__ void arrive_when_copied(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Returns when the phase with this parity has ended.
__device__ __forceinline__ void wait(Barrier* barrier, unsigned parity) {
  const unsigned address = shared_address(barrier);
  unsigned ended;
  do {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // Suspends the thread for a while instead of spinning.
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(address), "r"(parity)
                 : "memory");
#else
    asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(address), "r"(parity)
                 : "memory");
#endif
  } while (ended == 0);
}

}  // namespace attention
