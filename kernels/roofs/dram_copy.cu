// dram_copy: how fast DRAM can be read and written at once. UNROLL 16-byte loads in flight a thread,
// then as many stores. HINT: what the caches are told (roofs/vector.cuh); SPREAD: who copies what (roofs/tiles.cuh).

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef UNROLL
#define UNROLL 8
#endif
#ifndef HINT
#define HINT 0
#endif
#ifndef SPREAD
#define SPREAD 0
#endif

namespace {

using namespace roofs;

static_assert(UNROLL >= 1 && kTileVectorsOfThread % UNROLL == 0, "UNROLL: 1, 2, 4 or 8");
static_assert(HINT >= 0 && HINT <= 3, "HINT: 0 to 3");
constexpr Hint kHint = static_cast<Hint>(HINT);

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    dram_copy_kernel(const uint4* __restrict__ x, uint4* __restrict__ out, long long* __restrict__ clocks,
                     long long tiles, int clocked) {
  const uint64_t policy = kHint == Hint::kEvictFirst ? evict_first() : 0;
  Stopwatch watch;
  watch.start();
  const Share mine = share<SPREAD != 0>(tiles);
  for (long long t = mine.first; t < mine.end; t += mine.step) {
    const long long own = t * kTileVectors + threadIdx.x;
#pragma unroll 1
    for (int first = 0; first < kTileVectorsOfThread; first += UNROLL) {
      uint4 v[UNROLL];
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) v[i] = load_streaming<kHint>(x + own + (first + i) * kStreamThreads, policy);
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) store<kHint>(out + own + (first + i) * kStreamThreads, v[i], policy);
    }
  }
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_partial_tiles(s.WORDS))) return p;
  return p.add({"dram_copy_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_copy_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks), s.WORDS / kTileWords, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
