// shared_read: bandwidth of reading an SM's shared memory without bank conflicts.
//
// LDMATRIX 0: ld.shared of 16 bytes per lane. LDMATRIX 1: ldmatrix, four 8 × 8 matrices per warp. Both read 512
// contiguous bytes per warp, so both have the same sum: it does not depend on which lane has which element.

#include <flashcore/problem.h>

#include <roofs/sm_tile.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/vector.cuh>

#ifndef LDMATRIX
#define LDMATRIX 0
#endif

using namespace roofs;

static_assert(LDMATRIX == 0 || LDMATRIX == 1, "LDMATRIX: 0 or 1");

extern "C" __global__ void __launch_bounds__(kSmThreads, 1)
    shared_read_kernel(const uint4* __restrict__ x, uint32_t* __restrict__ out, long long* __restrict__ clocks,
                       int iterations, int clocked) {
  extern __shared__ uint4 tile[];
  for (int i = threadIdx.x; i < kSmTileVectors; i += kSmThreads) {
    tile[i] = x[static_cast<long long>(blockIdx.x) * kSmTileVectors + i];
  }
  const uint32_t first = shared_address(tile);
  const auto load = [first](uint32_t offset) {
    return LDMATRIX ? load_matrices(first + offset) : load_shared(first + offset);
  };
  Stopwatch watch;
  watch.start();  // a barrier: the tile is complete
  const Checksum sum = read_again(iterations, load);
  watch.stop(clocks, clocked);
  store_sum<kSmThreads>(sum, out + blockIdx.x);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_tiles(s.WORDS))) return p;
  return p.add({"shared_read_kernel", dim3(s.BLOCKS), dim3(kSmThreads), dim3(1), kSmTileBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], shared_read_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
