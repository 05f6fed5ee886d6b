// dram_copy: bandwidth of reading and writing DRAM at once. Eight 16-byte loads in flight per thread, then as
// many stores; one block per tile of 32 KiB.

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

namespace {

using namespace roofs;

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    dram_copy_kernel(const uint4* __restrict__ x, uint4* __restrict__ out, long long* __restrict__ clocks,
                     int clocked) {
  Stopwatch watch;
  watch.start();
  const long long own = static_cast<long long>(blockIdx.x) * kTileVectors + threadIdx.x;
  uint4 v[kTileVectorsOfThread];
#pragma unroll
  for (int i = 0; i < kTileVectorsOfThread; ++i) v[i] = load_streaming(x + own + i * kStreamThreads);
#pragma unroll
  for (int i = 0; i < kTileVectorsOfThread; ++i) store(out + own + i * kStreamThreads, v[i]);
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_blocks(s.WORDS, s.BLOCKS))) return p;
  return p.add({"dram_copy_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_copy_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks), a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
