// Kernels that use local memory in each of the ways that there are; compiled by test_spills.py.
#ifndef COUNT
#define COUNT 96  // values a thread keeps: too many for -maxrregcount=40, few enough for 255
#endif

extern "C" __global__ void spills(const float* __restrict__ a, float* __restrict__ b, int n) {
  float x[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) x[i] = a[threadIdx.x + i * 128];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = x[i] * x[(i * 7 + 1) % COUNT] + b[k];  // spill line
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) b[threadIdx.x + i * 128] = x[i];
}

extern "C" __global__ void indexed(const float* a, float* b, const int* which, int n) {
  float x[32];
  for (int i = 0; i < 32; ++i) x[i] = a[i];
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += x[which[k] & 31];  // index line
  b[threadIdx.x] = sum;
}

extern "C" __global__ void neither(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }
