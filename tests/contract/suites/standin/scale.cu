// out = factor · x. Without a GPU only its machine code and its plan matter.
#include <flashcore/problem.h>

extern "C" __global__ void scale_kernel(const float* x, float* out, float factor, long long count) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < count) out[i] = x[i] * factor;
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  return flashcore::Plan().add(
      {.kernel = "scale_kernel", .grid = dim3(flashcore::ceil_div(s.N, 256)), .block = dim3(256)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], scale_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), s.N);
}

FLASHCORE_VARIANT(plan, launch)
