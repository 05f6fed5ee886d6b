// dram_triad_bulk: out = x + factor · y with all DRAM traffic by the bulk copy engine. A block loads TILE KiB of
// x and of y into shared memory, overwrites x's with the result, and stores that.
//
// RESIDENT blocks fit per SM, limited by their shared memory; dram_copy_bulk.cu explains why so few.

#include <flashcore/problem.h>

#include <roofs/bulk.cuh>
#include <roofs/multiply_add.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef TILE
#define TILE 8
#endif
#ifndef RESIDENT
#define RESIDENT 4
#endif

namespace {

using namespace roofs;

constexpr int kBytes = TILE * 1024;
constexpr int kBlocksOfRow = kTileWords * 4 / kBytes;  // blocks that share a row of clocks; the first writes it
constexpr int kRowBytes = kStreamThreads * 16;
constexpr unsigned kSharedBytes = shared_bytes_for(RESIDENT);
static_assert(kBytes % kRowBytes == 0 && kTileWords * 4 % kBytes == 0, "TILE: 4, 8, 16 or 32 KiB");
static_assert(RESIDENT >= 1 && kSharedBytes >= 2 * kBytes, "RESIDENT: as many as have room for two tiles");

}  // namespace

extern "C" __global__ void __launch_bounds__(kStreamThreads)
    dram_triad_bulk_kernel(const char* __restrict__ x, const char* __restrict__ y, char* __restrict__ out,
                           long long* __restrict__ clocks, float factor, int clocked) {
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t barriers[2];
  const long long own = static_cast<long long>(blockIdx.x) * kBytes;
  const uint32_t of_x = shared_address(memory), of_y = of_x + kBytes;
  const uint32_t x_there = shared_address(barriers), y_there = x_there + 8;
  const bool noted = blockIdx.x % kBlocksOfRow == 0;
  Stopwatch watch;
  if (noted) watch.start();
  if (threadIdx.x == 0) {
    init_barrier(x_there);
    init_barrier(y_there);
    fence_barriers();
    load_bulk(of_x, x + own, kBytes, x_there);
    load_bulk(of_y, y + own, kBytes, y_there);
  }
  __syncthreads();
  wait_barrier(x_there);
  wait_barrier(y_there);
#pragma unroll
  for (int row = 0; row < kBytes; row += kRowBytes) {
    const uint32_t at = row + threadIdx.x * 16;
    store_shared(of_x + at, multiply_add(factor, load_shared(of_y + at), load_shared(of_x + at)));
  }
  fence_stores();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(out + own, of_x, kBytes);
    wait_stores_read();
  }
  if (noted) watch.stop(clocks, clocked, blockIdx.x / kBlocksOfRow);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_blocks(s.WORDS, s.BLOCKS))) return p;
  return p.add({"dram_triad_bulk_kernel", dim3(s.BLOCKS * kBlocksOfRow), dim3(kStreamThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_triad_bulk_kernel, stream, static_cast<const char*>(a.x),
                        static_cast<const char*>(a.y), static_cast<char*>(a.out), static_cast<long long*>(a.clocks),
                        a.factor, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
