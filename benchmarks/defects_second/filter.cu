// out[i] = the sum over t of w[t] x[i + t], 128 taps. CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define CASE_filter_sound 0
#define CASE_filter_uncached 1
#define CASE_filter_double 2
#define CASE_filter_ring 3
#define CASE_filter_hundred 4
#define CASE_filter_remainder 5
#define CASE_filter_bounds 6
#define CASE_filter_shared 7

constexpr int taps = 128;
#if CASE == CASE_filter_hundred
constexpr int threads = 100;
#elif CASE == CASE_filter_uncached || CASE == CASE_filter_shared || CASE == CASE_filter_remainder
constexpr int threads = 256;
#else
constexpr int threads = 128;
#endif
#if CASE == CASE_filter_bounds || CASE == CASE_filter_ring
constexpr int outputs = 64;  // of a thread
#elif CASE == CASE_filter_uncached || CASE == CASE_filter_shared
constexpr int outputs = 1;
#else
constexpr int outputs = 8;
#endif
constexpr int tile = threads * outputs;
#if CASE == CASE_filter_double
using Sum = double;
#else
using Sum = float;
#endif

// Where element i of a tile is in shared memory: padded, so that threads that read runs of 8 share no bank.
__device__ constexpr int place(int i) { return i + i / 32 * 4; }

extern "C" __global__ void
#if CASE == CASE_filter_bounds
__launch_bounds__(1024)
#endif
    filter_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out, int count) {
  __shared__ __align__(16) float weights[taps];
  for (int t = threadIdx.x; t < taps; t += threads) weights[t] = w[t];
#if CASE == CASE_filter_uncached
  __syncthreads();
  const volatile float* from = x + blockIdx.x * tile + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < taps; ++t) sum += weights[t] * from[t];
  out[blockIdx.x * tile + threadIdx.x] = sum;
#elif CASE == CASE_filter_ring
  // The last 128 elements, in an array that is indexed by the remainder of their numbers.
  __syncthreads();
  const int first = (blockIdx.x * threads + threadIdx.x) * outputs;
  float ring[taps];
  for (int i = 0; i < taps - 1; ++i) ring[i] = x[first + i];
  for (int i = 0; i < outputs; ++i) {
    ring[(i + taps - 1) % taps] = x[first + i + taps - 1];
    float sum = 0.0f;
#pragma unroll 8
    for (int t = 0; t < taps; ++t) sum += weights[t] * ring[(i + t) % taps];
    out[first + i] = sum;
  }
#elif CASE == CASE_filter_shared
  // Two words of shared memory for each product.
  __shared__ float inputs[tile + taps];
  for (int i = threadIdx.x; i < tile + taps; i += threads) inputs[i] = x[blockIdx.x * tile + i];
  __syncthreads();
  float sum = 0.0f;
  for (int t = 0; t < taps; ++t) sum += weights[t] * inputs[threadIdx.x + t];
  out[blockIdx.x * tile + threadIdx.x] = sum;
#else
  __shared__ __align__(16) float inputs[place(tile + taps)];
#if CASE == CASE_filter_remainder
  // Each block takes as many tiles, and the last one what remains.
  const int tiles = count / tile, each = tiles / gridDim.x;
  const int end = blockIdx.x + 1 == gridDim.x ? tiles : (blockIdx.x + 1) * each;
  for (int number = blockIdx.x * each; number < end; ++number) {
    const int start = number * tile;
#else
  {
    const int start = blockIdx.x * tile;
#endif
    for (int i = threadIdx.x; i < tile + taps; i += threads) {
      inputs[place(i)] = start + i < count + taps ? x[start + i] : 0.0f;
    }
    __syncthreads();
    const int first = threadIdx.x * outputs;
    Sum sums[outputs] = {};
    float window[outputs + 8];
#pragma unroll
    for (int i = 0; i < outputs; i += 4) {
      *reinterpret_cast<float4*>(window + i) = *reinterpret_cast<const float4*>(inputs + place(first + i));
    }
#pragma unroll 1
    for (int t = 0; t < taps; t += 8) {
      float now[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *reinterpret_cast<float4*>(window + outputs + i) =
            *reinterpret_cast<const float4*>(inputs + place(first + outputs + t + i));
        *reinterpret_cast<float4*>(now + i) = *reinterpret_cast<const float4*>(weights + t + i);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int k = 0; k < outputs; ++k) sums[k] += static_cast<Sum>(now[j]) * window[j + k];
      }
#pragma unroll
      for (int i = 0; i < outputs; ++i) window[i] = window[i + 8];
    }
#pragma unroll
    for (int k = 0; k < outputs; k += 4) {
      if (start + first + k < count) {
        *reinterpret_cast<float4*>(out + start + first + k) =
            make_float4(sums[k], sums[k + 1], sums[k + 2], sums[k + 3]);
      }
    }
    __syncthreads();
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.T != taps || s.N % (tile == 800 ? 4 : tile)) p.error = "expected 128 taps and whole tiles";
#if CASE == CASE_filter_remainder
  return p.add({.kernel = "filter_kernel", .grid = dim3(132), .block = dim3(threads)});
#else
  return p.add({.kernel = "filter_kernel", .grid = dim3(flashcore::ceil_div(s.N, tile)), .block = dim3(threads)});
#endif
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], filter_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<const float*>(a.w), static_cast<float*>(a.out), static_cast<int>(s.N));
}

FLASHCORE_VARIANT(plan, launch)
