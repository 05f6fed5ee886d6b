// dram_triad: out = x + factor · y, two streams in and one out. UNROLL 16-byte loads of each in flight
// a thread. HINT: what the caches are told (roofs/vector.cuh).

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef UNROLL
#define UNROLL 4
#endif
#ifndef HINT
#define HINT 0
#endif

namespace {

using namespace roofs;

static_assert(UNROLL >= 1 && kTileVectorsOfThread % UNROLL == 0, "UNROLL: 1, 2, 4 or 8");
static_assert(HINT >= 0 && HINT <= 3, "HINT: 0 to 3");
constexpr Hint kHint = static_cast<Hint>(HINT);

__device__ uint32_t multiply_add(float factor, uint32_t y, uint32_t x) {
  return __float_as_uint(fmaf(factor, __uint_as_float(y), __uint_as_float(x)));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads, 4)
    dram_triad_kernel(const uint4* __restrict__ x, const uint4* __restrict__ y, uint4* __restrict__ out,
                      long long* __restrict__ clocks, float factor, long long tiles, int clocked) {
  const uint64_t policy = kHint == Hint::kEvictFirst ? evict_first() : 0;
  Stopwatch watch;
  watch.start();
  for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
    const long long own = t * kTileVectors + threadIdx.x;
#pragma unroll 1
    for (int first = 0; first < kTileVectorsOfThread; first += UNROLL) {
      uint4 u[UNROLL], v[UNROLL];
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) {
        u[i] = load_streaming<kHint>(x + own + (first + i) * kStreamThreads, policy);
        v[i] = load_streaming<kHint>(y + own + (first + i) * kStreamThreads, policy);
      }
#pragma unroll
      for (int i = 0; i < UNROLL; ++i) {
        store<kHint>(out + own + (first + i) * kStreamThreads,
              make_uint4(multiply_add(factor, v[i].x, u[i].x), multiply_add(factor, v[i].y, u[i].y),
                         multiply_add(factor, v[i].z, u[i].z), multiply_add(factor, v[i].w, u[i].w)), policy);
      }
    }
  }
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_partial_tiles(s.WORDS))) return p;
  return p.add({"dram_triad_kernel", dim3(s.BLOCKS), dim3(kStreamThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_triad_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<const uint4*>(a.y), static_cast<uint4*>(a.out), static_cast<long long*>(a.clocks),
                        a.factor, s.WORDS / kTileWords, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
