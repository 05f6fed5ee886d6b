// launch: the cost of an empty kernel.
//
// One call launches 32 kernels in sequence: 31 empty ones and one that writes the answer, for checking. Called
// eagerly, a call's time over 32 is the cost of a plain launch; replayed from a graph, the cost of a graph
// node.
//
// PROGRAMMATIC 1: programmatic dependent launch. Each kernel lets its successor start at once and then waits for
// its predecessor, as any kernel that accesses memory must: what remains is the hand-over.

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>

#include <cstdint>

#ifndef PROGRAMMATIC
#define PROGRAMMATIC 0
#endif

namespace {

constexpr int kLaunches = 32;  // repeated in the problem's file
static_assert(PROGRAMMATIC == 0 || PROGRAMMATIC == 1, "PROGRAMMATIC: 0 or 1");
static_assert(kLaunches == flashcore::Plan::kCapacity, "as many as a plan holds");

__device__ void release_successor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ void await_predecessor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace

extern "C" __global__ void empty_kernel() {
  release_successor();
  await_predecessor();
}

extern "C" __global__ void answer_kernel(const uint32_t* __restrict__ x, uint32_t* __restrict__ out,
                                         long long* __restrict__ clocks, int clocked) {
  release_successor();
  await_predecessor();
  roofs::Stopwatch watch;
  watch.start();
  const int own = blockIdx.x * blockDim.x + threadIdx.x;
  out[own] = x[own] + 1;
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.THREADS % 32 != 0 || s.THREADS > 1024) p.error = "THREADS must be whole warps, at most 1024";
  if (p.error) return p;
  for (int i = 0; i < kLaunches; ++i) {
    flashcore::Launch l;
    l.kernel = i + 1 < kLaunches ? "empty_kernel" : "answer_kernel";
    l.grid = dim3(s.BLOCKS);
    l.block = dim3(s.THREADS);
    l.programmatic = PROGRAMMATIC != 0;
    p.add(l);
  }
  return p;
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  for (int i = 0; i + 1 < p.count; ++i) {
    if (const cudaError_t error = flashcore::run(p.launches[i], empty_kernel, stream); error != cudaSuccess) {
      return error;
    }
  }
  return flashcore::run(p.launches[p.count - 1], answer_kernel, stream, static_cast<const uint32_t*>(a.x),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
