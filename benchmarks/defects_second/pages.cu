// out[m] = the squared deviations of the elements along a list of 128 pages that begins with page m, for each of the 32
// elements of a page. CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define CASE_pages_chase 1
#define CASE_pages_registers 2

#if CASE == CASE_pages_chase
constexpr int threads = 256;
#else
constexpr int threads = 128;
#endif
constexpr int steps = 128;

extern "C" __global__ void pages_kernel(const float* __restrict__ value, const int* __restrict__ next,
                                        float* __restrict__ out) {
  const int list = blockIdx.x * (threads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  int page = list;
#if CASE == CASE_pages_chase
  // Each address is known once the last page's successor is.
  float sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < steps; ++i) {
    const float v = value[page * 32 + lane];
    sum += v;
    squares += v * v;
    page = next[page];
  }
  out[list * 32 + lane] = squares - sum * sum / steps;
#else
  // All elements of the list stay in registers until the mean is known.
  float v[steps], sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    v[i] = value[page * 32 + lane];
    sum += v[i];
    page = next[page];
  }
  const float mean = sum / steps;
#pragma unroll
  for (int i = 0; i < steps; ++i) squares += (v[i] - mean) * (v[i] - mean);
  out[list * 32 + lane] = squares;
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.M % 8) p.error = "expected a multiple of 8 lists";
  return p.add({.kernel = "pages_kernel", .grid = dim3(s.M * 32 / threads), .block = dim3(threads)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], pages_kernel, stream, static_cast<const float*>(a.value),
                        static_cast<const int*>(a.next), static_cast<float*>(a.out));
}

FLASHCORE_VARIANT(plan, launch)
