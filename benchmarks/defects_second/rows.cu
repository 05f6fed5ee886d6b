// For each row of x: (x - mean) / deviation (norm), or its prefix sums (scan). CASE chooses one planted defect; the
// table is in defects.toml.
#include <flashcore/problem.h>

#define CASE_norm_sound 0
#define CASE_norm_reread 1
#define CASE_norm_small 2
#define CASE_norm_tiny 3
#define CASE_scan_pitch 4
#define CASE_scan_stores 5
#define CASE_scan_steps 6
#define CASE_scan_serial 7

#if CASE == CASE_norm_small
constexpr int threads = 32;
#elif CASE == CASE_scan_serial
constexpr int threads = 1024;
#else
constexpr int threads = 256;
#endif
constexpr int warps = threads / 32;
constexpr int group = 32;  // CASE_norm_reread: rows of a block

__device__ float warp_sum(float value) {
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(~0u, value, d);
  return value;
}

// The sum of the values of the lanes up to this one.
__device__ float warp_scan(float value) {
  for (int d = 1; d < 32; d *= 2) {
    const float before = __shfl_up_sync(~0u, value, d);
    if (threadIdx.x % 32 >= d) value += before;
  }
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float parts[warps];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < warps; ++i) total += parts[i];
  return total;
}

extern "C" __global__ void rows_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int columns
#if CASE == CASE_scan_steps
                                       ,
                                       int distance
#endif
) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if CASE == CASE_norm_sound
  // A block per row of 2,048, which it keeps in registers.
  const long long row = static_cast<long long>(blockIdx.x) * columns;
  float4 v[2];
  float sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < 2; ++i) {
    v[i] = *reinterpret_cast<const float4*>(x + row + i * 1024 + threadIdx.x * 4);
    sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  }
  const float mean = block_sum(sum) / columns;
  for (int i = 0; i < 2; ++i) {
    v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
    squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
  }
  const float scale = rsqrtf(block_sum(squares) / columns + 1e-5f);
  for (int i = 0; i < 2; ++i) {
    *reinterpret_cast<float4*>(out + row + i * 1024 + threadIdx.x * 4) =
        make_float4(v[i].x * scale, v[i].y * scale, v[i].z * scale, v[i].w * scale);
  }
#elif CASE == CASE_norm_reread
  // The means of 32 rows, then their deviations, then the results: each reads all rows again.
  __shared__ float means[group], scales[group];
  const long long first = static_cast<long long>(blockIdx.x) * group;
  for (int r = warp; r < group; r += warps) {
    const float* from = x + (first + r) * columns;
    float sum = 0.0f;
    for (int k = lane * 4; k < columns; k += 128) {
      const float4 v = *reinterpret_cast<const float4*>(from + k);
      sum += (v.x + v.y) + (v.z + v.w);
    }
    sum = warp_sum(sum);
    if (lane == 0) means[r] = sum / columns;
  }
  __syncthreads();
  for (int r = warp; r < group; r += warps) {
    const float* from = x + (first + r) * columns;
    const float mean = means[r];
    float squares = 0.0f;
    for (int k = lane * 4; k < columns; k += 128) {
      const float4 v = *reinterpret_cast<const float4*>(from + k);
      squares += ((v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean)) +
                 ((v.z - mean) * (v.z - mean) + (v.w - mean) * (v.w - mean));
    }
    squares = warp_sum(squares);
    if (lane == 0) scales[r] = rsqrtf(squares / columns + 1e-5f);
  }
  __syncthreads();
  for (int r = warp; r < group; r += warps) {
    const float4* from = reinterpret_cast<const float4*>(x + (first + r) * columns);
    float4* to = reinterpret_cast<float4*>(out + (first + r) * columns);
    const float mean = means[r], scale = scales[r];
    for (int k = lane; k < columns / 4; k += 32) {
      const float4 v = from[k];
      to[k] = make_float4((v.x - mean) * scale, (v.y - mean) * scale, (v.z - mean) * scale, (v.w - mean) * scale);
    }
  }
#elif CASE == CASE_norm_small || CASE == CASE_norm_tiny
  // A warp per row of 64.
  const long long at = (static_cast<long long>(blockIdx.x) * warps + warp) * columns + lane * 2;
  float2 v = *reinterpret_cast<const float2*>(x + at);
  const float mean = warp_sum(v.x + v.y) / columns;
  v = make_float2(v.x - mean, v.y - mean);
  const float scale = rsqrtf(warp_sum(v.x * v.x + v.y * v.y) / columns + 1e-5f);
  *reinterpret_cast<float2*>(out + at) = make_float2(v.x * scale, v.y * scale);
#elif CASE == CASE_scan_pitch || CASE == CASE_scan_stores
  // A block per row of 8,192, transposed in shared memory: a thread sums a run of 32.
#if CASE == CASE_scan_pitch
  constexpr int pitch = 32;
#else
  constexpr int pitch = 33;
#endif
  __shared__ float tile[threads * pitch], parts[warps];
  const long long row = static_cast<long long>(blockIdx.x) * columns;
  for (int i = threadIdx.x; i < threads * 32; i += threads) tile[i / 32 * pitch + i % 32] = x[row + i];
  __syncthreads();
  volatile float* run = tile + threadIdx.x * pitch;
  float v[32], sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 32; ++j) v[j] = sum += run[j];
  const float upto = warp_scan(sum);
  if (lane == 31) parts[warp] = upto;
  __syncthreads();
  float before = upto - sum;
  for (int i = 0; i < warp; ++i) before += parts[i];
#if CASE == CASE_scan_pitch
#pragma unroll
  for (int j = 0; j < 32; ++j) run[j] = before + v[j];
  __syncthreads();
  for (int i = threadIdx.x; i < threads * 32; i += threads) out[row + i] = tile[i / 32 * pitch + i % 32];
#else
  // Results are stored from here: neighboring threads 128 B from each other.
#pragma unroll
  for (int j = 0; j < 32; ++j) out[row + threadIdx.x * 32 + j] = before + v[j];
#endif
#elif CASE == CASE_scan_steps
  // One of 16 launches: each adds the element at twice the distance of the last one.
  const int i = blockIdx.x * threads + threadIdx.x;
  out[i] = i >= distance ? x[i] + x[i - distance] : x[i];
#elif CASE == CASE_scan_serial
  // A block per row of 2,048; its first thread adds up the sums of the others.
  __shared__ float sums[threads];
  const long long at = static_cast<long long>(blockIdx.x) * columns + threadIdx.x * 2;
  const float2 v = *reinterpret_cast<const float2*>(x + at);
  sums[threadIdx.x] = v.x + v.y;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int i = 0; i < threads; ++i) {
      const float sum = sums[i];
      sums[i] = total;
      total += sum;
    }
  }
  __syncthreads();
  const float before = sums[threadIdx.x];
  *reinterpret_cast<float2*>(out + at) = make_float2(before + v.x, before + v.x + v.y);
#endif
}

#if CASE < CASE_scan_pitch
#define ROWS s.M
#define COLUMNS s.K
#else
#define ROWS s.B
#define COLUMNS s.S
#endif
#if CASE == CASE_norm_sound || CASE == CASE_norm_reread || CASE == CASE_scan_serial
constexpr int supported = 2048;
#elif CASE == CASE_norm_small || CASE == CASE_norm_tiny
constexpr int supported = 64;
#elif CASE == CASE_scan_steps
constexpr int supported = 65536;
#else
constexpr int supported = 8192;
#endif

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  flashcore::Launch launch{.kernel = "rows_kernel", .grid = dim3(ROWS), .block = dim3(threads)};
  if (COLUMNS != supported) p.error = "expected rows of another length";
#if CASE == CASE_norm_reread
  launch.grid = dim3(ROWS / group);
#elif CASE == CASE_norm_tiny
  launch.grid = dim3(ROWS / warps);
#elif CASE == CASE_scan_steps
  if (ROWS != 1) p.error = "expected one row";
  p.workspace_bytes = supported * sizeof(float);
  launch.grid = dim3(supported / threads);
  for (int k = 1; k < 16; ++k) p.add(launch);
#endif
  return p.add(launch);
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                          void* workspace, cudaStream_t stream) {
  const float* x = static_cast<const float*>(a.x);
  float* out = static_cast<float*>(a.out);
#if CASE == CASE_scan_steps
  float* buffers[2] = {static_cast<float*>(workspace), out};
  for (int k = 0; k < p.count; ++k) {
    const cudaError_t error = flashcore::run(p.launches[k], rows_kernel, stream, k == 0 ? x : buffers[(k + 1) % 2],
                                             buffers[k % 2], 1, supported, 1 << k);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
#else
  return flashcore::run(p.launches[0], rows_kernel, stream, x, out, static_cast<int>(ROWS), static_cast<int>(COLUMNS));
#endif
}

FLASHCORE_VARIANT(plan, launch)
