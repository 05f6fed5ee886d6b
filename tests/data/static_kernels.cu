// Kernels whose static facts differ in every column. The files static_<arch>.{cubin,log,sass.gz,usage.txt} were
// made of it by nvcc 13.0.88, nvdisasm and cuobjdump 13.2.51:
//   nvcc -O3 -arch=<arch> -Xptxas -v -cubin static_kernels.cu -o static_<arch>.cubin > static_<arch>.log 2>&1
//   nvdisasm -c static_<arch>.cubin | gzip -9n > static_<arch>.sass.gz
//   cuobjdump -res-usage static_<arch>.cubin > static_<arch>.usage.txt
#include <mma.h>

// Spills: 64 values live across a barrier with 32 registers.
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* out, const float* in) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) out[i * 1024 + threadIdx.x] = v[63 - i] * v[i];
}

// A stack frame without spills: a local array indexed at run time.
extern "C" __global__ void stack(int* out, const int* in) {
  int local[64];
  for (int i = 0; i < 64; ++i) local[in[i] & 63] = in[i * 7];
  out[threadIdx.x] = local[out[threadIdx.x] & 63];
}

// What the compiler warns of on sm_90a: it does not know how many registers a block starts with.
extern "C" __global__ void warned(int* out) {
#if __CUDA_ARCH__ == 900
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#endif
  out[threadIdx.x] = 1;
}

// Static shared memory, two barriers, exp, 16-byte accesses, an atomic.
extern "C" __global__ void shared(float4* out, const float4* in, int* counter) {
  __shared__ float4 tile[128];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float4 v = tile[127 - threadIdx.x];
  v.x = exp2f(v.x);
  asm volatile("barrier.sync 1, 128;");
  out[threadIdx.x] = v;
  atomicAdd(counter, 1);
}

// Tensor cores, and a name that C++ mangles.
template <int N>
__global__ void tensor(half* out, const half* a, const half* b) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> x;
  fragment<matrix_b, 16, 16, 16, half, col_major> y;
  fragment<accumulator, 16, 16, 16, half> z;
  fill_fragment(z, __float2half(0.0f));
  for (int i = 0; i < N; ++i) {
    load_matrix_sync(x, a + 16 * i, 16 * N);
    load_matrix_sync(y, b + 16 * i, 16 * N);
    mma_sync(z, x, y, z);
  }
  store_matrix_sync(out, z, 16, mem_row_major);
}
template __global__ void tensor<4>(half*, const half*, const half*);
