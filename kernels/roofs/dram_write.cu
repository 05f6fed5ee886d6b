// dram_write: bandwidth of writing DRAM. Eight independent 16-byte stores per thread.
//
// The written data look random and cost almost nothing: each thread has 16 random bytes of `seed` and XORs them
// with a multiple of an odd constant, a different one for each row of 256 vectors.

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

namespace {

using namespace roofs;

constexpr uint32_t kMix = 0x9E3779B1u;  // odd, with well mixed bits: rows differ in about half of theirs

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    dram_write_kernel(const uint4* __restrict__ seed, uint4* __restrict__ out, long long* __restrict__ clocks,
                      long long tiles, int clocked) {
  const uint4 own = seed[threadIdx.x];
  Stopwatch watch;
  watch.start();
  for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
    uint4* tile = out + t * kTileVectors + threadIdx.x;
    const uint32_t row = static_cast<uint32_t>(t) * kTileVectorsOfThread;
#pragma unroll
    for (int i = 0; i < kTileVectorsOfThread; ++i) {
      const uint32_t flip = (row + i) * kMix;
      store(tile + i * kStreamThreads, make_uint4(own.x ^ flip, own.y ^ flip, own.z ^ flip, own.w ^ flip));
    }
  }
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.SEED != kStreamThreads * kVectorWords) p.error = "SEED must be 1024: 16 bytes for each of 256 threads";
  if (const char* refused = refuse_partial_tiles(s.WORDS)) p.error = refused;
  if (p.error) return p;
  return p.add({"dram_write_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_write_kernel, stream, static_cast<const uint4*>(a.seed),
                        static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks), s.WORDS / kTileWords, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
