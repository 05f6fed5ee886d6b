// C = alpha A B + beta C, one element a thread, and what FAULT makes of it.
#include <flashcore/problem.h>
#include <flashcore/launcher.h>

#ifndef FAULT
#define FAULT 0
#endif

template <bool kBias>
__global__ void update(float* a, std::int64_t pitch, const float* b, float* c, const float* bias, int M, int N, int K,
                       float alpha, float beta) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[row * pitch + k] * b[k * N + column];
  float found = alpha * sum + (FAULT == 1 ? 0 : beta * c[row * N + column]);
  if (kBias) found += bias[column];
  c[row * N + column] = found;
  if (FAULT == 4 && column == 0) a[row * pitch] = 0;
}

static cudaError_t launch(const flashcore::Args& g, const flashcore::Shape& s, void*, cudaStream_t stream) {
  static int calls = 0;
  const int rows = FAULT == 3 && calls++ ? 1 : static_cast<int>(s.M);
  const std::int64_t pitch = FAULT == 2 ? s.K : g.a_strides[0];
  const auto kernel = g.bias != nullptr && FAULT != 5 ? update<true> : update<false>;
  kernel<<<dim3(flashcore::ceil_div(s.N, 64), rows), 64, 0, stream>>>(
      (float*)g.a, pitch, (const float*)g.b, (float*)g.c, (const float*)g.bias, s.M, s.N, s.K, g.alpha, g.beta);
  return cudaGetLastError();
}

FLASHCORE_LAUNCHER(launch)
