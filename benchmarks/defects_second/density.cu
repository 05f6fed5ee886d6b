// out = the sum over j of w[j] max(0, 1 - (x - c[j])²). CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define CASE_density_powers 1
#define CASE_density_barriers 2
#define CASE_density_unrolled 3
#define CASE_density_chain 4

constexpr int centers = 256;
#if CASE == CASE_density_barriers
constexpr int threads = 1024;
#elif CASE == CASE_density_chain
constexpr int threads = 128;
#else
constexpr int threads = 256;
#endif
constexpr int outputs = 16;  // CASE_density_unrolled: of a thread

extern "C" __global__ void density_kernel(const float* __restrict__ x, const float* __restrict__ c,
                                          const float* __restrict__ w, float* __restrict__ out, int count,
                                          float power) {
  __shared__ float2 terms[centers];  // a center and its weight
  for (int j = threadIdx.x; j < centers; j += threads) terms[j] = make_float2(c[j], w[j]);
  __syncthreads();
#if CASE == CASE_density_powers
  // A square by powf.
  const int i = blockIdx.x * threads + threadIdx.x;
  float sum = 0.0f;
  for (int j = 0; j < centers; ++j) {
    sum += terms[j].y * fmaxf(0.0f, 1.0f - powf(fabsf(x[i] - terms[j].x), power));
  }
  out[i] = sum;
#elif CASE == CASE_density_barriers
  // A barrier per term, of which nothing is shared.
  for (int i = blockIdx.x * threads + threadIdx.x; i < count; i += gridDim.x * threads) {
    const float at = x[i];
    float sum = 0.0f;
    for (int j = 0; j < centers; ++j) {
      const float u = at - terms[j].x;
      sum += terms[j].y * fmaxf(0.0f, 1.0f - u * u);
      __syncthreads();
    }
    out[i] = sum;
  }
#elif CASE == CASE_density_unrolled
  // 16 outputs and all terms: a body of 16,384 instructions.
  const int first = blockIdx.x * threads * outputs + threadIdx.x;
  float at[outputs], sums[outputs];
#pragma unroll
  for (int k = 0; k < outputs; ++k) at[k] = x[first + k * threads], sums[k] = 0.0f;
#pragma unroll
  for (int j = 0; j < centers; ++j) {
#pragma unroll
    for (int k = 0; k < outputs; ++k) {
      const float u = at[k] - terms[j].x;
      sums[k] += terms[j].y * fmaxf(0.0f, 1.0f - u * u);
    }
  }
#pragma unroll
  for (int k = 0; k < outputs; ++k) out[first + k * threads] = sums[k];
#elif CASE == CASE_density_chain
  // Compensated sums, one at a time, by a warp per scheduler: each addition waits for the last.
  for (int i = blockIdx.x * threads + threadIdx.x; i < count; i += gridDim.x * threads) {
    const float at = x[i];
    float sum = 0.0f, lost = 0.0f;
#pragma unroll 8
    for (int j = 0; j < centers; ++j) {
      const float u = at - terms[j].x;
      const float term = terms[j].y * fmaxf(0.0f, 1.0f - u * u) - lost;
      const float next = sum + term;
      lost = (next - sum) - term;
      sum = next;
    }
    out[i] = sum;
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.C != centers || s.N % 4096) p.error = "expected 256 centers and a multiple of 4,096 outputs";
#if CASE == CASE_density_powers
  return p.add({.kernel = "density_kernel", .grid = dim3(s.N / threads), .block = dim3(threads)});
#elif CASE == CASE_density_unrolled
  return p.add({.kernel = "density_kernel", .grid = dim3(s.N / (threads * outputs)), .block = dim3(threads)});
#else
  return p.add({.kernel = "density_kernel", .grid = dim3(132), .block = dim3(threads)});
#endif
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], density_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<const float*>(a.c), static_cast<const float*>(a.w), static_cast<float*>(a.out),
                        static_cast<int>(s.N), 2.0f);
}

FLASHCORE_VARIANT(plan, launch)
