// dram_copy_bulk: DRAM read and written at once by the bulk copy engine. A block takes TILE KiB into shared
// memory and out again; one thread asks for it, no data passes a register.
//
// RESIDENT blocks fit an SM, by the shared memory that they claim. Fewer is faster: of what all blocks together
// have on its way (64 KiB an SM for 16 tiles of 4 KiB) DRAM sees a window that moves through memory; with all
// that shared memory holds it is three times as wide and an H200 copies 4 % slower, it is believed for the
// pages that DRAM has to open and close.

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
constexpr int kBlocksOfRow = kTileWords * 4 / kBytes;  // blocks that share a row of clocks; the first notes it
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
