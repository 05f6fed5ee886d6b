// exp2: the rate of the special-function units, measured with ex2.approx.
//
// Each thread has eight exponents and adds up 2^x while x advances by `step`. All exponents are multiples of 2⁻¹⁶
// below 8 and thus exact; the sum of n powers has a closed form for checking. The two additions per power go to
// the FMA pipes, at eight times the rate, so they do not limit.

#include <flashcore/problem.h>

#include <roofs/lanes.cuh>
#include <roofs/stopwatch.cuh>

using namespace roofs;

namespace {

constexpr int kChains = 8;
constexpr int kSteps = 8;  // of each chain per loop turn; repeated in the problem's file

__device__ float power_of_two(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kLaneThreads, 1)
    exp2_kernel(const float4* __restrict__ start, const float* __restrict__ step, float4* __restrict__ out,
                long long* __restrict__ clocks, int iterations, int clocked) {
  const int own = blockIdx.x * kLaneThreads + threadIdx.x;
  const float d = step[own];
  float x[kChains], sum[kChains] = {};
  load_lane(start, own, x);

  Stopwatch watch;
  watch.start();
#pragma unroll 1
  for (int n = 0; n < iterations; ++n) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) {
        sum[i] += power_of_two(x[i]);
        x[i] += d;
      }
    }
  }
  watch.stop(clocks, clocked);
  store_lane(out, own, sum);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refuse_other_lanes(s.THREADS, s.VALUES, kChains))) return p;
  return p.add({"exp2_kernel", dim3(s.BLOCKS), dim3(kLaneThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], exp2_kernel, stream, static_cast<const float4*>(a.start),
                        static_cast<const float*>(a.step), static_cast<float4*>(a.out),
                        static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
