// naive: one thread per row.
//
// Three passes over the row: maximum, sum, output. Neighboring threads read addresses one row apart,
// so each load of a warp touches 32 different cache lines to use 4 bytes of each.

#include <flashcore/problem.h>

namespace {

constexpr int kThreads = 128;

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    row_softmax_naive_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= rows) return;
  const float* from = x + static_cast<std::size_t>(row) * cols;
  float* to = out + static_cast<std::size_t>(row) * cols;

  float largest = from[0];
  for (int c = 1; c < cols; ++c) largest = fmaxf(largest, from[c]);
  float sum = 0.0f;
  for (int c = 0; c < cols; ++c) sum += expf(from[c] - largest);
  const float factor = 1.0f / sum;
  for (int c = 0; c < cols; ++c) to[c] = expf(from[c] - largest) * factor;
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.R > INT32_MAX - kThreads || s.C > INT32_MAX) {
    p.error = "expected R and C below 2^31: rows and columns are counted in int";
    return p;
  }
  return p.add({"row_softmax_naive_kernel", dim3(flashcore::ceil_div(s.R, kThreads)), dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], row_softmax_naive_kernel, stream, a.x, a.out, s.R, s.C);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
