// dram_copy_bulk: DRAM read and written at once by the bulk copy engine, chunk by chunk through shared memory.
//
// One thread of each block keeps the engine busy; no data passes a register. CHUNK KiB a piece, STAGES
// pieces of shared memory.
//
//   BURST 0: half of the pieces are being read while the other half are being written.
//   BURST 1: all pieces, one run of memory, are read; then all are written. DRAM loses time whenever it turns
//            from reading to writing, so fewer and longer turns may pay. Two blocks an SM take turns.
//   EVICT 1: L2 is told to let go of the data first: nobody reads it again.
//   SPREAD 0: blocks side by side copy chunks side by side; SPREAD 1: each block has a run of its own.

#include <flashcore/problem.h>

#include <roofs/bulk.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/tiles.cuh>
#include <roofs/vector.cuh>

#ifndef CHUNK
#define CHUNK 16
#endif
#ifndef STAGES
#define STAGES 8
#endif
#ifndef BURST
#define BURST 0
#endif
#ifndef EVICT
#define EVICT 0
#endif
#ifndef SPREAD
#define SPREAD 0
#endif

using namespace roofs;

namespace {

constexpr int kChunkBytes = CHUNK * 1024;
constexpr int kTileBytes = kTileWords * 4;
constexpr int kBulkThreads = 32;
constexpr unsigned kSharedBytes = STAGES * kChunkBytes;
static_assert(STAGES >= 2 && STAGES % 2 == 0, "STAGES: even, half of them for each direction");
static_assert(CHUNK >= 1 && kTileBytes % kChunkBytes == 0, "CHUNK: 1, 2, 4, 8, 16 or 32 KiB");
static_assert(kSharedBytes <= 224 * 1024, "STAGES · CHUNK: at most 224 KiB");

// The pieces of shared memory as a ring, as the one thread sees it.
class Ring {
 public:
  __device__ Ring(const char* x, char* out, uint32_t data, uint32_t barriers)
      : x_(x), out_(out), data_(data), barriers_(barriers) {
#if EVICT
    policy_ = evict_first();
#endif
    for (int s = 0; s < STAGES; ++s) init_barrier(barriers_ + 8 * s);
    fence_barriers();
  }

  // The next piece is to hold this chunk.
  __device__ void load(long long chunk) {
    const char* from = x_ + chunk * kChunkBytes;
    const uint32_t to = data_ + filled_ * kChunkBytes;
    const uint32_t barrier = barriers_ + 8 * filled_;
#if EVICT
    load_bulk(to, from, kChunkBytes, barrier, policy_);
#else
    load_bulk(to, from, kChunkBytes, barrier);
#endif
    if (++filled_ == STAGES) filled_ = 0;
  }

  // Waits for the oldest piece.
  __device__ void wait() {
    wait_barrier(barriers_ + 8 * awaited_, parity_);
    if (++awaited_ == STAGES) {
      awaited_ = 0;
      parity_ ^= 1;
    }
  }

  // Writes the oldest piece that was waited for and is not yet written.
  __device__ void store(long long chunk) {
    char* to = out_ + chunk * kChunkBytes;
    const uint32_t from = data_ + written_ * kChunkBytes;
#if EVICT
    store_bulk(to, from, kChunkBytes, policy_);
#else
    store_bulk(to, from, kChunkBytes);
#endif
    if (++written_ == STAGES) written_ = 0;
  }

 private:
  const char* x_;
  char* out_;
  uint32_t data_;
  uint32_t barriers_;
  uint64_t policy_ = 0;
  int filled_ = 0;
  int awaited_ = 0;
  int written_ = 0;
  uint32_t parity_ = 0;
};

__device__ void copy_streaming(Ring& ring, Share own) {
  constexpr int kAhead = STAGES / 2;
  long long next = own.first;
  for (int s = 0; s < kAhead && next < own.end; ++s, next += own.step) ring.load(next);
#pragma unroll 1
  for (long long chunk = own.first; chunk < own.end; chunk += own.step) {
    ring.wait();
    ring.store(chunk);
    if (next < own.end) {
      // The piece that is filled next was written STAGES - kAhead stores ago.
      wait_stores_read<STAGES - kAhead>();
      ring.load(next);
      next += own.step;
    }
  }
}

// Runs of STAGES chunks; they are what blocks share out.
__device__ void copy_in_bursts(Ring& ring, long long chunks) {
  const Share own = share<SPREAD != 0>((chunks + STAGES - 1) / STAGES);
#pragma unroll 1
  for (long long run = own.first; run < own.end; run += own.step) {
    const long long first = run * STAGES;
    const int count = static_cast<int>(min(static_cast<long long>(STAGES), chunks - first));
    for (int s = 0; s < count; ++s) ring.load(first + s);
    for (int s = 0; s < count; ++s) ring.wait();
    for (int s = 0; s < count; ++s) ring.store(first + s);
    wait_stores_read<0>();
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kBulkThreads)
    dram_copy_bulk_kernel(const char* __restrict__ x, char* __restrict__ out, long long* __restrict__ clocks,
                          long long chunks, int clocked) {
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t barriers[STAGES];
  Stopwatch watch;
  watch.start();
  if (threadIdx.x == 0) {
    Ring ring(x, out, shared_address(memory), shared_address(barriers));
    if (BURST) {
      copy_in_bursts(ring, chunks);
    } else {
      copy_streaming(ring, share<SPREAD != 0>(chunks));
    }
    wait_stores();
  }
  watch.stop(clocks, clocked);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_partial_tiles(s.WORDS))) return p;
  return p.add({"dram_copy_bulk_kernel", dim3(s.BLOCKS), dim3(kBulkThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], dram_copy_bulk_kernel, stream, static_cast<const char*>(a.x),
                        static_cast<char*>(a.out), static_cast<long long*>(a.clocks), s.WORDS * 4 / kChunkBytes,
                        a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
