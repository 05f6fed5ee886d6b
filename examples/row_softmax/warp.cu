// warp: one warp per row.
//
// Compared with naive: the 32 lanes of a warp read 32 neighboring values, one cache line instead of 32, and
// the row's maximum and sum are reduced with shuffles. There are 32 times as many threads to hide latency.

#include <flashcore/phases.cuh>
#include <flashcore/problem.h>

#ifndef WARPS
#define WARPS 4
#endif

namespace {

constexpr int kWarps = WARPS;  // rows per block
constexpr int kThreads = kWarps * 32;
static_assert(kWarps >= 1 && kWarps <= 32, "WARPS: 1 to 32");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    row_softmax_warp_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows) return;  // the whole warp: the shuffles below have all 32 lanes
  const float* from = x + static_cast<std::size_t>(row) * cols;
  float* to = out + static_cast<std::size_t>(row) * cols;

  FLASHCORE_ROLE(phases, "row");  // for `flashcore phases`: no code in any other build
  FLASHCORE_PHASE(phases, "maximum");
  float largest = from[0];  // a value of the row, so that it is finite for a lane without a column
  for (int c = lane; c < cols; c += 32) largest = fmaxf(largest, from[c]);
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  FLASHCORE_PHASE(phases, "sum");
  float sum = 0.0f;
  for (int c = lane; c < cols; c += 32) sum += expf(from[c] - largest);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  FLASHCORE_PHASE(phases, "write");
  const float factor = 1.0f / sum;
  for (int c = lane; c < cols; c += 32) to[c] = expf(from[c] - largest) * factor;
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.R > INT32_MAX - kWarps || s.C > INT32_MAX - 32) {
    p.error = "expected R and C below 2^31: rows and columns are counted in int";
    return p;
  }
  return p.add({"row_softmax_warp_kernel", dim3(flashcore::ceil_div(s.R, kWarps)), dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], row_softmax_warp_kernel, stream, a.x, a.out, s.R, s.C);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
