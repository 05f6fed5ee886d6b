// Launches the kernel that the variant's config names. The headers are the original ones.
#include <flashcore/problem.h>
#include <flashcore/launcher.h>

#include <10_kernel_warptiling.cuh>  // defines WARPSIZE, which later headers use
#include HEADER

static dim3 grid(std::int64_t x, int per_x, std::int64_t y, int per_y) {
  return dim3(flashcore::ceil_div(x, per_x), flashcore::ceil_div(y, per_y));
}

static cudaError_t launch(const flashcore::Args& g, const flashcore::Shape& s, void*, cudaStream_t stream) {
  KERNEL<<<grid(GRID), BLOCK, 0, stream>>>(s.M, s.N, s.K, g.alpha, (float*)g.a, (float*)g.b, g.beta, (float*)g.c);
  return cudaGetLastError();
}

FLASHCORE_LAUNCHER(launch)
