// l2_read: bandwidth of reading L2 from all SMs. UNROLL independent 16-byte loads in flight per thread.
//
// The working set is a third of L2 (the two halves of a large L2 may each keep a copy of a line) and stays there
// from the second tile on; the loads bypass L1 (.cg). Block b starts at its own tile and iterates over the whole
// set, so every SM reads from every slice, near and far.

#include <flashcore/problem.h>

#include <roofs/checksum.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef UNROLL
#define UNROLL 8
#endif

namespace {

using namespace roofs;

static_assert(UNROLL >= 1 && kTileVectorsOfThread % UNROLL == 0, "UNROLL: 1, 2, 4 or 8");

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    l2_read_kernel(const uint4* __restrict__ x, uint32_t* __restrict__ out, long long* __restrict__ clocks, int tiles,
                   int iterations, int clocked) {
  int tile = static_cast<int>(static_cast<long long>(blockIdx.x) * tiles / gridDim.x);
  Stopwatch watch;
  watch.start();
  Checksum sum;
  for (int n = 0; n < iterations; ++n) {
    const uint4* own = x + static_cast<long long>(tile) * kTileVectors + threadIdx.x;
#pragma unroll 1
    for (int first = 0; first < kTileVectorsOfThread; first += UNROLL) {
      uint4 v[UNROLL];
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) v[i] = load_l2(own + (first + i) * kStreamThreads);
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) sum.add(v[i]);
    }
    tile = tile + 1 == tiles ? 0 : tile + 1;
  }
  watch.stop(clocks, clocked);
  store_sum<kStreamThreads>(sum, out + blockIdx.x);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_partial_tiles(s.WORDS))) return p;
  return p.add({"l2_read_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], l2_read_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), s.WORDS / kTileWords,
                        a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
