// Each thread filters 32 samples. Two blocks of 1,024 threads per SM leave 32 registers per thread.
extern "C" __global__ void __launch_bounds__(1024, 2) fir(const float* x, const float* taps, float* y) {
  float sample[32];
  const int base = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) sample[i] = x[base + i];
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sample[i] = fmaf(sample[i], taps[t], sample[(i + 1) % 32]);
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) y[base + i] = sample[i];
}
