// Loops that must be unrolled, arrays that must stay in registers, arithmetic that must stay in FP32.

namespace {

constexpr int kThreads = 128;
constexpr int kSums = 8;

__device__ __forceinline__ float scaled(float value, float factor) {
  const float shifted = value * 0.5f + 1.0f;
  return shifted * factor;
}

__device__ __forceinline__ float warp_sum(float value) {
  // warp's sum
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    sums_kernel(const float* __restrict__ x, float* __restrict__ out, int count, float factor, int shift) {
  float sums[kSums] = {};
  for (int base = threadIdx.x; base < count; base += kThreads * kSums) {
    // unrolled
    for (int i = 0; i < kSums; ++i) {
      sums[i] += scaled(x[base + kThreads * i], factor);
    }
  }
  float total = 0;
  for (int i = 0; i < kSums; ++i) total += sums[i];
  total = warp_sum(total);
  if (threadIdx.x % 32 == 0) atomicAdd(out + shift, total);
}
