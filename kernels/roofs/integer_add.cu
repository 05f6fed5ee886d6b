// integer_add: the SM's issue rate, measured with independent integer additions.
//
// Eight pairs of numbers per thread, each following Fibonacci's sequence modulo 2³²: a += b, b += a. The pairs'
// additions are independent of each other, one loop turn is 256 of them, and n steps are a power of a 2 × 2
// matrix.
//
// PIPES 1: both halves as additions on the ALU (half a warp per clock and scheduler if it has 16 lanes).
// PIPES 2: every other one as a multiply-add by a 1 that the compiler does not know, which goes to the FMA pipe;
// together they can fill every issue slot.

#include <flashcore/problem.h>

#include <roofs/lanes.cuh>
#include <roofs/stopwatch.cuh>

#ifndef PIPES
#define PIPES 2
#endif

using namespace roofs;

namespace {

static_assert(PIPES == 1 || PIPES == 2, "PIPES: 1 or 2");
constexpr int kSteps = 16;  // of each pair per loop turn; repeated in the problem's file

__device__ uint32_t add(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm volatile("add.u32 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

__device__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm volatile("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kLaneThreads, 1)
    integer_add_kernel(const uint4* __restrict__ seed, uint4* __restrict__ out, long long* __restrict__ clocks,
                       int iterations, uint32_t one, int clocked) {
  const int own = blockIdx.x * kLaneThreads + threadIdx.x;
  uint32_t v[16];
  load_lane(seed, own, v);

  Stopwatch watch;
  watch.start();
#pragma unroll 1
  for (int n = 0; n < iterations; ++n) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 16; i += 2) v[i] = add(v[i], v[i + 1]);
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        v[i + 1] = PIPES == 1 ? add(v[i + 1], v[i]) : multiply_add(v[i], one, v[i + 1]);
      }
    }
  }
  watch.stop(clocks, clocked);
  store_lane(out, own, v);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_lanes(s.THREADS, s.VALUES, 16))) return p;
  return p.add({"integer_add_kernel", dim3(s.BLOCKS), dim3(kLaneThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], integer_add_kernel, stream, static_cast<const uint4*>(a.seed),
                        static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks), a.iterations, 1u, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
