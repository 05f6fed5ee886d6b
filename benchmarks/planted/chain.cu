// A chain of LOOPS dependent multiply-adds in every thread: it takes as long as it is, and memory has no part in it.
#include <flashcore/problem.h>

static_assert(LOOPS >= 1 && BLOCKS >= 1 && THREADS >= 32 && THREADS <= 1024, "LOOPS, BLOCKS, THREADS: see config");

// Half of a value and half of what it is to become: x stays x, which only `half` being 0.5 makes so.
extern "C" __global__ void __launch_bounds__(THREADS) chain_kernel(const float* x, float* out, float half, int count) {
  const int i = static_cast<int>(threadIdx.x) % count;
  const float other = x[i] * half;
  float value = x[i];
#pragma unroll 1  // so that a longer chain is the same code with another number in it
  for (int step = 0; step < LOOPS; ++step) value = fmaf(value, half, other);
  out[i] = value;
}

static flashcore::Plan plan(const flashcore::Shape&) {
  return flashcore::Plan().add({.kernel = "chain_kernel", .grid = dim3(BLOCKS), .block = dim3(THREADS)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], chain_kernel, stream, static_cast<const float*>(a.x), static_cast<float*>(a.out),
                        static_cast<float>(a.half), static_cast<int>(s.N));
}

FLASHCORE_VARIANT(plan, launch)
