// dram_read: bandwidth of reading DRAM. UNROLL independent 16-byte loads in flight per thread.
//
// 29 KiB in flight per SM cover the latency of an H200's DRAM at its full rate (4.8 TB/s over 0.8 us and 132
// SMs); 1,024 threads with 4 or 8 vectors each have 64 or 128. The sum of all words proves that they were read;
// it costs two additions per vector.

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
    dram_read_kernel(const uint4* __restrict__ x, uint32_t* __restrict__ out, long long* __restrict__ clocks,
                     long long tiles, int clocked) {
  Stopwatch watch;
  watch.start();
  Checksum sum;
  for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
    const uint4* own = x + t * kTileVectors + threadIdx.x;
#pragma unroll 1
    for (int first = 0; first < kTileVectorsOfThread; first += UNROLL) {
      uint4 v[UNROLL];
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) v[i] = load_streaming(own + (first + i) * kStreamThreads);
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) sum.add(v[i]);
    }
  }
  watch.stop(clocks, clocked);
  store_sum<kStreamThreads>(sum, out + blockIdx.x);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_partial_tiles(s.WORDS))) return p;
  return p.add({"dram_read_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_read_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), s.WORDS / kTileWords,
                        a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
