// out[r] = the sum of row r. CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define SOUND 0
#define GLOBAL_ATOMICS 1
#define BARRIERS 2
#define ROW_PER_THREAD 3
#define SHARED_ATOMICS 4
#define ONE_LOAD_AT_A_TIME 5
#define SHARED_OCCUPANCY 6
#define REGISTER_OCCUPANCY 7
#define POINTERS 8
#define SHARED_BYTES 9

#if CASE == BARRIERS
constexpr int threads = 1024;
#elif CASE == SHARED_OCCUPANCY || CASE == REGISTER_OCCUPANCY || CASE == ONE_LOAD_AT_A_TIME
constexpr int threads = 128;
#else
constexpr int threads = 256;
#endif

__device__ __forceinline__ float warp_sum(float y) {
  for (int d = 16; d > 0; d /= 2) y += __shfl_xor_sync(~0u, y, d);
  return y;
}

__device__ __forceinline__ void write_sum(float total, float* out) {
  __shared__ float parts[32];
  total = warp_sum(total);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x < 32) {
    total = warp_sum(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) *out = total;
  }
}

extern "C" __global__ void
#if CASE == REGISTER_OCCUPANCY
__launch_bounds__(128, 2)
#endif
rows_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
  const float* row = x + static_cast<long long>(blockIdx.x) * columns;
  float total = 0.0f;
#if CASE == SOUND
  for (int k = 4 * threadIdx.x; k < columns; k += 4 * threads) {
    const float4 v = *reinterpret_cast<const float4*>(row + k);
    total += (v.x + v.y) + (v.z + v.w);
  }
  write_sum(total, out + blockIdx.x);
#elif CASE == GLOBAL_ATOMICS
  for (int k = threadIdx.x; k < columns; k += threads) atomicAdd(out + blockIdx.x, row[k]);
#elif CASE == BARRIERS
  // A tree in shared memory, with all of its barriers, for every 1,024 columns.
  __shared__ float tree[threads];
  for (int k = threadIdx.x; k < columns; k += threads) {
    tree[threadIdx.x] = row[k];
    for (int d = threads / 2; d > 0; d /= 2) {
      __syncthreads();
      if (threadIdx.x < d) tree[threadIdx.x] += tree[threadIdx.x + d];
    }
    __syncthreads();
    total += tree[0];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = total;
#elif CASE == ROW_PER_THREAD
  const int r = blockIdx.x * threads + threadIdx.x;
  if (r >= rows) return;
  for (int k = 0; k < columns; ++k) total += x[static_cast<long long>(r) * columns + k];
  out[r] = total;
#elif CASE == SHARED_ATOMICS
  __shared__ float all;
  if (threadIdx.x == 0) all = 0.0f;
  __syncthreads();
  for (int k = threadIdx.x; k < columns; k += threads) atomicAdd(&all, row[k]);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = all;
#elif CASE == ONE_LOAD_AT_A_TIME
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    total = 0.0f;
#pragma unroll 1
    for (int k = threadIdx.x; k < columns; k += threads) total += x[static_cast<long long>(r) * columns + k];
    write_sum(total, out + r);
    __syncthreads();
  }
#elif CASE == SHARED_OCCUPANCY
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = 0.0f;
  for (int k = threadIdx.x; k < columns; k += threads) total += row[k];
  write_sum(total + scratch[threadIdx.x], out + blockIdx.x);
#elif CASE == REGISTER_OCCUPANCY
  // A hundred and eighty values that stay alive, of which eight are needed.
  constexpr int n = 180;
  float v[n];
#pragma unroll
  for (int k = 0; k < n; ++k) v[k] = row[(threadIdx.x + k) % columns];
  for (int k = threadIdx.x; k < columns; k += threads) {
    const float y = row[k];
    total += y;
#pragma unroll
    for (int j = 0; j < n; j += 20) v[j] = fmaf(v[j], 0.5f, y);
  }
  float needless = 0.0f;
#pragma unroll
  for (int k = 0; k < n; ++k) needless += v[k];
  write_sum(total + 0.0f * needless, out + blockIdx.x);
#elif CASE == POINTERS
  // Each address needs the value before: no two loads of a warp overlap.
  int jump = 0;
#pragma unroll 1
  for (int k = threadIdx.x; k < columns; k += threads) {
    const float y = row[k + jump];
    total += y;
    jump = __float_as_int(y) == 0x7fffffff;
  }
  write_sum(total, out + blockIdx.x);
#elif CASE == SHARED_BYTES
  // Sums byte by byte through shared memory, which a register would do.
  __shared__ unsigned char bytes[threads][4];
  for (int k = threadIdx.x; k < columns; k += threads) {
    const unsigned word = __float_as_uint(row[k]);
    volatile unsigned char* mine = bytes[threadIdx.x];
    for (int j = 0; j < 4; ++j) mine[j] = static_cast<unsigned char>(word >> (8 * j));
    unsigned back = 0;
    for (int j = 0; j < 4; ++j) back |= static_cast<unsigned>(mine[j]) << (8 * j);
    total += __uint_as_float(back);
  }
  write_sum(total, out + blockIdx.x);
#endif
}

#if CASE == GLOBAL_ATOMICS
extern "C" __global__ void zero_kernel(float* out, int rows) {
  const int r = blockIdx.x * 256 + threadIdx.x;
  if (r < rows) out[r] = 0.0f;
}
#endif

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Launch launch{.kernel = "rows_kernel", .grid = dim3(s.M), .block = dim3(threads)};
  flashcore::Plan p;
#if CASE == ROW_PER_THREAD
  launch.grid = dim3(flashcore::ceil_div(s.M, threads));
#elif CASE == ONE_LOAD_AT_A_TIME
  launch.grid = dim3(132);
#elif CASE == SHARED_OCCUPANCY
  launch.dynamic_smem = 100 * 1024;
#elif CASE == GLOBAL_ATOMICS
  p.add({.kernel = "zero_kernel", .grid = dim3(flashcore::ceil_div(s.M, 256)), .block = dim3(256)});
#endif
  return p.add(launch);
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  float* out = static_cast<float*>(a.out);
#if CASE == GLOBAL_ATOMICS
  const cudaError_t error = flashcore::run(p.launches[0], zero_kernel, stream, out, static_cast<int>(s.M));
  if (error != cudaSuccess) return error;
#endif
  return flashcore::run(p.launches[p.count - 1], rows_kernel, stream, static_cast<const float*>(a.x), out,
                        static_cast<int>(s.M), static_cast<int>(s.K));
}

FLASHCORE_VARIANT(plan, launch)
