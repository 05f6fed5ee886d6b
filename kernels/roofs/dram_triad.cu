// dram_triad: out = x + factor · y, two streams in and one out. Four 16-byte loads of each in flight per
// thread; one block per tile of 32 KiB.

#include <flashcore/problem.h>

#include <roofs/multiply_add.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

namespace {

using namespace roofs;

constexpr int kInFlight = 4;
static_assert(kTileVectorsOfThread % kInFlight == 0, "whole rounds");

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    dram_triad_kernel(const uint4* __restrict__ x, const uint4* __restrict__ y, uint4* __restrict__ out,
                      long long* __restrict__ clocks, float factor, int clocked) {
  Stopwatch watch;
  watch.start();
  const long long own = static_cast<long long>(blockIdx.x) * kTileVectors + threadIdx.x;
#pragma unroll 1
  for (int first = 0; first < kTileVectorsOfThread; first += kInFlight) {
    uint4 u[kInFlight], v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      u[i] = load_streaming(x + own + (first + i) * kStreamThreads);
      v[i] = load_streaming(y + own + (first + i) * kStreamThreads);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      store(out + own + (first + i) * kStreamThreads, multiply_add(factor, v[i], u[i]));
    }
  }
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_blocks(s.WORDS, s.BLOCKS))) return p;
  return p.add({"dram_triad_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_triad_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<const uint4*>(a.y), static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks),
                        a.factor, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
