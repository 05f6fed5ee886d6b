// 16-byte loads and stores: in an inlined function with two calls, in a template with two instances.

namespace {

constexpr int kThreads = 128;

struct alignas(16) Pack {
  float v[4];
};

using Row = float4;

__device__ __forceinline__ Pack load(const float* from, int i) { return *reinterpret_cast<const Pack*>(from + 4 * i); }

__device__ __forceinline__ void store(float* to, int i, const Pack& pack) {
  // wide store
  *reinterpret_cast<Pack*>(to + 4 * i) = pack;
}

}  // namespace

template <int kUnroll>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int count) {
  const int first = (blockIdx.x * kThreads + threadIdx.x) * kUnroll;
#pragma unroll
  for (int i = first; i < first + kUnroll; ++i) {
    if (i >= count) return;
    const Pack a = load(x, i);
    const Pack b = load(y, i);
    Pack sum;
    for (int k = 0; k < 4; ++k) sum.v[k] = a.v[k] + b.v[k];
    store(out, i, sum);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    rows_kernel(const Row* __restrict__ from, float* __restrict__ out, int rows, int pitch) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  from += lane;
  float total = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Row part = from[row * pitch + 32 * i];
    total += part.x + part.y + part.z + part.w;
  }
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  if (lane == 0) out[row] = total;
}

template __global__ void copy_kernel<1>(const float*, const float*, float*, int);
template __global__ void copy_kernel<2>(const float*, const float*, float*, int);
