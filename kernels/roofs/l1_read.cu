// l1_read: bandwidth of reading an SM's L1. Plain 16-byte loads that hit, each warp's 512 bytes contiguous.

#include <flashcore/problem.h>

#include <roofs/sm_tile.cuh>
#include <roofs/stopwatch.cuh>
#include <roofs/vector.cuh>

using namespace roofs;

extern "C" __global__ void __launch_bounds__(kSmThreads, 1)
    l1_read_kernel(const uint4* __restrict__ x, uint32_t* __restrict__ out, long long* __restrict__ clocks,
                   int iterations, int clocked) {
  const char* tile = reinterpret_cast<const char*>(x + static_cast<long long>(blockIdx.x) * kSmTileVectors);
  const auto load = [tile](uint32_t offset) { return load_l1(reinterpret_cast<const uint4*>(tile + offset)); };
  Stopwatch watch;
  watch.start();
  const Checksum sum = read_again(iterations, load);
  watch.stop(clocks, clocked);
  store_sum<kSmThreads>(sum, out + blockIdx.x);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_tiles(s.WORDS))) return p;
  return p.add({"l1_read_kernel", dim3(s.BLOCKS), dim3(kSmThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  // Requests the largest possible L1. It is a hint, and repeating it costs little.
  const cudaError_t error = cudaFuncSetAttribute(l1_read_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                 cudaSharedmemCarveoutMaxL1);
  if (error != cudaSuccess) return error;
  return flashcore::run(p.launches[0], l1_read_kernel, stream, static_cast<const uint4*>(a.x),
                        static_cast<uint32_t*>(a.out), static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
