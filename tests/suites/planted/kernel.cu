// A kernel that has one of everything a gate watches: wide and asynchronous copies, shared memory, barriers in
// a loop, tensor cores. test_planted.py changes one thing at a time; what it looks for are the lines' own words.
#include <flashcore/problem.h>

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 2048;
constexpr int kSteps = 4;

__device__ void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void copy_async(float* to, const float* from) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}

__device__ void copy_wait() { asm volatile("cp.async.wait_all;"); }

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    planted_kernel(const float* __restrict__ x, float* __restrict__ out, float factor, int count) {
  __shared__ alignas(16) float tile[kTile];
  const int t = threadIdx.x;
  float c[4] = {0, 0, 0, 0};
  float sum = 0;
  for (int base = blockIdx.x * kTile; base < count; base += gridDim.x * kTile) {
    copy_async(tile + 4 * t, x + base + 4 * t);
    copy_wait();
    __syncthreads();
    const float4 wide = reinterpret_cast<const float4*>(x + base + kTile / 2)[t];
    sum += wide.x + wide.y + wide.z + wide.w;
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      const unsigned a[4] = {__float_as_uint(tile[t]), __float_as_uint(tile[t ^ 1]), __float_as_uint(tile[t ^ 2]),
                             __float_as_uint(tile[t ^ 3])};
      const unsigned b[2] = {__float_as_uint(tile[t + kThreads]), __float_as_uint(tile[t + 2 * kThreads])};
      multiply(c, a, b);
      __syncthreads();
      tile[t] = (step & 1) ? c[1] : c[0];
    }
    reinterpret_cast<float4*>(out + base)[t] = make_float4(c[0] * factor, c[1], c[2], c[3] + sum);
  }
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  p.add({.kernel = "planted_kernel", .grid = dim3(flashcore::ceil_div(s.N, kTile)), .block = dim3(kThreads)});
  p.workspace_bytes = 0;
  return p;
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], planted_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), static_cast<int>(s.N));
}

FLASHCORE_VARIANT(plan, launch)
