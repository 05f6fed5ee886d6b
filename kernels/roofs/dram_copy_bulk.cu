// dram_copy_bulk: reads and writes DRAM with the bulk copy engine. A block loads TILE KiB into shared memory and
// stores it again; one thread issues the copies, and no data passes through registers.
//
// RESIDENT blocks fit per SM, limited by their shared memory. Fewer are faster: the data in flight of all
// blocks (64 KiB per SM for 16 tiles of 4 KiB) is a window that moves through memory. With all of the shared
// memory the window is three times as wide, and an H200 copies 4 % slower, presumably because DRAM must open
// and close more pages.

#include <flashcore/problem.h>

#include <roofs/bulk.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef TILE
#define TILE 4
#endif
#ifndef RESIDENT
#define RESIDENT 16
#endif

namespace {

using namespace roofs;

constexpr int kBytes = TILE * 1024;
constexpr int kBlocksOfRow = kTileWords * 4 / kBytes;  // blocks that share a row of clocks; the first writes it
constexpr int kBulkThreads = 32;
constexpr unsigned kSharedBytes = shared_bytes_for(RESIDENT);
static_assert(TILE >= 1 && kTileWords * 4 % kBytes == 0, "TILE: 1, 2, 4, 8, 16 or 32 KiB");
static_assert(RESIDENT >= 1 && RESIDENT <= 32 && kSharedBytes >= kBytes, "RESIDENT: as many as have room for a tile");

}  // namespace

extern "C" __global__ void __launch_bounds__(kBulkThreads)
    dram_copy_bulk_kernel(const char* __restrict__ x, char* __restrict__ out, long long* __restrict__ clocks,
                          int clocked) {
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t barrier_memory;
  const bool noted = blockIdx.x % kBlocksOfRow == 0;
  Stopwatch watch;
  if (noted) watch.start();
  if (threadIdx.x == 0) {
    const long long own = static_cast<long long>(blockIdx.x) * kBytes;
    const uint32_t tile = shared_address(memory);
    const uint32_t barrier = shared_address(&barrier_memory);
    init_barrier(barrier);
    fence_barriers();
    load_bulk(tile, x + own, kBytes, barrier);
    wait_barrier(barrier);
    store_bulk(out + own, tile, kBytes);
    wait_stores_read();
  }
  if (noted) watch.stop(clocks, clocked, blockIdx.x / kBlocksOfRow);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_blocks(s.WORDS, s.BLOCKS))) return p;
  return p.add({"dram_copy_bulk_kernel", dim3(s.BLOCKS * kBlocksOfRow), dim3(kBulkThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_copy_bulk_kernel, stream, static_cast<const char*>(a.x),
                        static_cast<char*>(a.out), static_cast<long long*>(a.clocks), a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
