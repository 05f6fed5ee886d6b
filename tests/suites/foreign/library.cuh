// As a library has it: templates, and template parameters with names that a macro of the config would break.
#pragma once

namespace lib {

template <int BM, bool Fast>
__global__ void scale(const float* x, float* out, float factor, int n) {
  const int i = blockIdx.x * BM + threadIdx.x;
  if (i < n) out[i] = Fast ? x[i] * factor : factor * x[i];
}

namespace {
__global__ void __cluster_dims__(2, 1, 1) none(float* out) {
  if (threadIdx.x > 1024) out[0] = 0;
}
}  // namespace

}  // namespace lib
