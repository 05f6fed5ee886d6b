// out = factor · x, ELEMENTS elements a thread.
#include <flashcore/problem.h>

#include "scale.cuh"

#ifndef ELEMENTS
#define ELEMENTS 1
#endif

static_assert(ELEMENTS >= 1 && ELEMENTS <= 8, "ELEMENTS must be 1 to 8");

extern "C" __global__ void scale_kernel(const float* x, float* out, float factor, long long count) {
  const long long first = (blockIdx.x * 256LL + threadIdx.x) * ELEMENTS;
  for (long long i = first; i < first + ELEMENTS && i < count; ++i) out[i] = scaled(x[i], factor);
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  const unsigned blocks = flashcore::ceil_div(s.N, 256 * ELEMENTS);
  return flashcore::Plan().add({.kernel = "scale_kernel", .grid = dim3(blocks), .block = dim3(256)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], scale_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), s.N);
}

FLASHCORE_VARIANT(plan, launch)
