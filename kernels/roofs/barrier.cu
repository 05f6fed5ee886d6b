// barrier: the cost of a barrier when all threads arrive together.
//
// CLUSTER 1: __syncthreads. CLUSTER 2, 4, 8: the barrier of a cluster of that many blocks, arrive.release and
// wait.acquire, like cluster.sync(). RELAXED 1 arrives without the release, which orders no memory: the cost when
// nothing must be published. Sixteen barriers per loop turn; between turns each thread updates a number (v = 3v + 1),
// which proves the turns and costs a sixteenth of an instruction.

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>

#include <cstdint>

#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef RELAXED
#define RELAXED 0
#endif

namespace {

constexpr int kBarriers = 16;  // per loop turn; repeated in the problem's file
static_assert(CLUSTER == 1 || CLUSTER == 2 || CLUSTER == 4 || CLUSTER == 8, "CLUSTER: 1, 2, 4 or 8 blocks");

__device__ void barrier() {
#if CLUSTER == 1
  __syncthreads();
#else
  if (RELAXED) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  } else {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024)
    barrier_kernel(const uint32_t* __restrict__ seed, uint32_t* __restrict__ out, long long* __restrict__ clocks,
                   int iterations, int clocked) {
  const int own = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t value = seed[own];
  barrier();  // the blocks of a cluster start together
  roofs::Stopwatch watch;
  watch.start();
#pragma unroll 1
  for (int n = 0; n < iterations; ++n) {
#pragma unroll
    for (int i = 0; i < kBarriers; ++i) barrier();
    value = 3 * value + 1;
  }
  watch.stop(clocks, clocked);
  out[own] = value;
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.THREADS % 32 != 0 || s.THREADS > 1024) p.error = "THREADS must be whole warps, at most 1024";
  if (s.BLOCKS % CLUSTER != 0) p.error = "BLOCKS must be whole clusters";
  if (p.error) return p;
  return p.add({"barrier_kernel", dim3(s.BLOCKS), dim3(s.THREADS), dim3(CLUSTER)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], barrier_kernel, stream, static_cast<const uint32_t*>(a.seed),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
