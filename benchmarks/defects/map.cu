// out = f(f(… x)), f(y) = y / 2 + 1. CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define SOUND 0
#define LAUNCH_BOUNDS 1
#define SPILLS 2
#define ARRAY_INDEX 3
#define FEW_BLOCKS 4
#define TAIL_WAVE 5
#define SMALL_BLOCKS 6
#define PARTIAL_WARP 7
#define BYTE_LOADS 8
#define BYTE_STORES 9
#define UNALIGNED 10
#define STRIDED_LOADS 11
#define DOUBLE_CONSTANTS 13
#define CHAIN 14
#define DIVERGENT 15
#define EXPONENTIALS 16
#define DIVISIONS 17
#define MANY_LAUNCHES 18
#define TINY 19
#define CONSTANT_TABLE 20
#define LONG_CODE 21
#define FENCES 22
#define SLEEPS 23
#define IMBALANCE 24
#define READ_TWICE 25
#define ONE_BLOCK 26
#define WIDE_STRIDE 27

#if CASE == LAUNCH_BOUNDS
#define BOUNDS __launch_bounds__(1024, 1)
#elif CASE == SPILLS
#define BOUNDS __launch_bounds__(256, 4)
#else
#define BOUNDS
#endif

#if CASE == TAIL_WAVE
constexpr int threads = 1024;
#elif CASE == SMALL_BLOCKS
constexpr int threads = 32;
#elif CASE == PARTIAL_WARP
constexpr int threads = 36;
#elif CASE == CHAIN
constexpr int threads = 64;
#else
constexpr int threads = 256;
#endif

__device__ __forceinline__ float step(float y) { return fmaf(y, 0.5f, 1.0f); }

__device__ __forceinline__ float steps(float y, long long rounds) {
  for (long long r = 0; r < rounds; ++r) y = step(y);
  return y;
}

#if CASE == CONSTANT_TABLE
__constant__ float halves[4096] = {0.5f};
#endif

extern "C" __global__ void BOUNDS map_kernel(const float* __restrict__ x, float* __restrict__ out, long long count, int rounds,
                                             long long begin) {
  const long long thread = begin + blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  const long long all = static_cast<long long>(gridDim.x) * blockDim.x;
  (void)all;
#if CASE == SOUND
  const long long i = 4 * thread;
  if (i >= count) return;
  float4 v = *reinterpret_cast<const float4*>(x + i);
  v = {steps(v.x, rounds), steps(v.y, rounds), steps(v.z, rounds), steps(v.w, rounds)};
  *reinterpret_cast<float4*>(out + i) = v;
#elif CASE == LAUNCH_BOUNDS || CASE == SPILLS
  // Ninety-six values that are all alive: each is mixed with the next ones before it is written.
  constexpr int n = 96;
  const long long apart = count / n;
  for (long long i = n * apart + thread; i < count; i += all) out[i] = steps(x[i], rounds);
  if (thread >= apart) return;
  float v[n];
#pragma unroll
  for (int k = 0; k < n; ++k) v[k] = x[thread + k * apart];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < n; ++k) v[k] = step(v[k]) + 0.0f * v[(k + 7) % n];
  }
#pragma unroll
  for (int k = 0; k < n; ++k) out[thread + k * apart] = v[k];
#elif CASE == ARRAY_INDEX
  const long long i = thread;
  if (i >= count) return;
  float v[16];
  for (int k = 0; k < 16; ++k) v[k] = 0.0f;
  v[threadIdx.x & 15] = x[i];
  for (int r = 0; r < rounds; ++r) v[(threadIdx.x + r + 1) & 15] = step(v[(threadIdx.x + r) & 15]);
  out[i] = v[(threadIdx.x + rounds) & 15];
#elif CASE == FEW_BLOCKS || CASE == ONE_BLOCK
  for (long long i = 4 * thread; i < count; i += 4 * all) {
    float4 v = *reinterpret_cast<const float4*>(x + i);
    v = {steps(v.x, rounds), steps(v.y, rounds), steps(v.z, rounds), steps(v.w, rounds)};
    *reinterpret_cast<float4*>(out + i) = v;
  }
#elif CASE == TAIL_WAVE
  __shared__ float most_of_the_memory[11 * 1024];  // with the dynamic part: one block per SM
  extern __shared__ float rest[];
  most_of_the_memory[threadIdx.x] = rest[threadIdx.x] = 0.0f;
  const long long part = (count + gridDim.x - 1) / gridDim.x;
  const long long last = min(count, (blockIdx.x + 1) * part);
  for (long long i = blockIdx.x * part + threadIdx.x; i < last; i += blockDim.x) {
    out[i] = steps(x[i], rounds) + most_of_the_memory[threadIdx.x] + rest[threadIdx.x];
  }
#elif CASE == BYTE_LOADS
  for (int k = 0; k < 4; ++k) {
    const long long i = thread + k * all;
    if (i >= count) return;
    const volatile unsigned char* bytes = reinterpret_cast<const unsigned char*>(x + i);
    const unsigned word = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<unsigned>(bytes[3]) << 24;
    out[i] = steps(__uint_as_float(word), rounds);
  }
#elif CASE == BYTE_STORES
  const long long i = thread;
  if (i >= count) return;
  const unsigned word = __float_as_uint(steps(x[i], rounds));
  volatile unsigned char* bytes = reinterpret_cast<unsigned char*>(out + i);
  for (int k = 0; k < 4; ++k) bytes[k] = static_cast<unsigned char>(word >> (8 * k));
#elif CASE == UNALIGNED
  const long long i = 8 * thread;
  if (i >= count) return;
  const volatile float* in = x;  // as a pointer of unknown alignment is read
#pragma unroll
  for (int k = 0; k < 8; ++k) out[i + k] = steps(in[i + k], rounds);
#elif CASE == STRIDED_LOADS || CASE == WIDE_STRIDE
  // Neighboring threads read and write elements that are `pitch` apart.
#if CASE == WIDE_STRIDE
  constexpr long long pitch = 4096;
#else
  constexpr long long pitch = 32;
#endif
  const long long lines = count / pitch;
  if (thread >= count) return;
  const long long far = thread % lines * pitch + thread / lines;
  out[far] = steps(x[far], rounds);
#elif CASE == DOUBLE_CONSTANTS
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  for (int r = 0; r < rounds; ++r) y = y * 0.5 + 1.0;
  out[i] = y;
#elif CASE == CHAIN
  for (long long i = thread; i < count; i += all) out[i] = steps(x[i], rounds);
#elif CASE == TINY || CASE == MANY_LAUNCHES
  const long long i = thread;
  if (i < count) out[i] = steps(x[i], rounds);
#elif CASE == SMALL_BLOCKS || CASE == PARTIAL_WARP
  const long long i = thread;
  if (i < count) out[i] = steps(x[i], rounds);
#elif CASE == DIVERGENT
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  switch (threadIdx.x & 7) {  // eight copies of one loop, one after another
    case 0: for (int r = 0; r < rounds; ++r) y = fmaf(y, 0.5f, 1.0f); break;
    case 1: for (int r = 0; r < rounds; ++r) y = __fadd_rn(__fmul_rn(y, 0.5f), 1.0f); break;
    case 2: for (int r = 0; r < rounds; ++r) y = __fadd_rn(1.0f, __fdividef(y, 2.0f)); break;
    case 3: for (int r = 0; r < rounds; ++r) y = fmaf(0.5f, y, 0.5f) + 0.5f; break;
    case 4: for (int r = 0; r < rounds; ++r) y = __fsub_rn(y, fmaf(y, 0.5f, -1.0f)); break;
    case 5: for (int r = 0; r < rounds; ++r) y = 0.5f * __fadd_rn(y, 2.0f); break;
    case 6: for (int r = 0; r < rounds; ++r) y = 0.25f * __fadd_rn(__fadd_rn(y, y), 4.0f); break;
    default: for (int r = 0; r < rounds; ++r) y = fmaf(y, 0.25f, fmaf(y, 0.25f, 1.0f));
  }
  out[i] = y;
#elif CASE == EXPONENTIALS
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  for (int r = 0; r < rounds; ++r) y = step(y) + 0.0f * (__expf(y) + __sinf(y) + __cosf(y) + rsqrtf(y * y + 1.0f));
  out[i] = y;
#elif CASE == DIVISIONS
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  const int width = static_cast<int>(count >> 7) | 1;
  for (int r = 0; r < rounds; ++r) {
    const int at = static_cast<int>(i) + r;
    y = step(y) + 0.0f * static_cast<float>(at / width + at % (width + r));
  }
  out[i] = y;
#elif CASE == CONSTANT_TABLE
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  for (int r = 0; r < rounds; ++r) y = fmaf(y, 0.5f + 0.0f * halves[(threadIdx.x * 61 + r) & 4095], 1.0f);
  out[i] = y;
#elif CASE == LONG_CODE
  const long long i = thread;
  if (i >= count) return;
  float y = x[i], z = y;
  for (int r = 0; r < rounds; r += 128) {
#define LINE(k) z = fmaf(z, 0.0f, static_cast<float>(k)); y = y + 0.0f * z; z = z * (1.0f + 1e-7f * (k)) + y;
#define LINES_8(k) LINE(k) LINE(k + 1) LINE(k + 2) LINE(k + 3) LINE(k + 4) LINE(k + 5) LINE(k + 6) LINE(k + 7)
#define LINES_64(k) LINES_8(k) LINES_8(k + 8) LINES_8(k + 16) LINES_8(k + 24) LINES_8(k + 32) LINES_8(k + 40) LINES_8(k + 48) LINES_8(k + 56)
#define LINES_512(k) LINES_64(k) LINES_64(k + 64) LINES_64(k + 128) LINES_64(k + 192) LINES_64(k + 256) LINES_64(k + 320) LINES_64(k + 384) LINES_64(k + 448)
    LINES_512(0) LINES_512(512) LINES_512(1024) LINES_512(1536) LINES_512(2048) LINES_512(2560) LINES_512(3072) LINES_512(3584)
    for (int k = r; k < min(r + 128, rounds); ++k) y = step(y);
  }
  out[i] = y + 0.0f * z;
#elif CASE == FENCES
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  for (int r = 0; r < rounds; ++r) {
    y = step(y);
    if (r % 8 == 0) {
      out[i] = y;
      __threadfence();
    }
  }
  out[i] = y;
#elif CASE == SLEEPS
  const long long i = thread;
  if (i >= count) return;
  float y = x[i];
  for (int r = 0; r < rounds; ++r) {
    y = step(y);
    if (r % 32 == 0) __nanosleep(2000);
  }
  out[i] = y;
#elif CASE == IMBALANCE
  // Half of the elements for one block of sixty-four, the rest for all others.
  const long long rare = (gridDim.x + 63) / 64, half = count / 2;
  const bool busy = blockIdx.x % 64 == 0;
  const long long group = busy ? blockIdx.x / 64 : blockIdx.x - blockIdx.x / 64 - 1;
  const long long groups = busy ? rare : gridDim.x - rare;
  for (long long i = (busy ? 0 : half) + group * blockDim.x + threadIdx.x; i < (busy ? half : count); i += groups * blockDim.x) {
    out[i] = steps(x[i], rounds);
  }
#elif CASE == READ_TWICE
  const long long i = thread;
  if (i >= count) return;
  float needless = 0.0f;
  for (int k = 1; k < 4; ++k) needless += x[(i + k * (count / 4)) % count];
  out[i] = steps(x[i], rounds) + 0.0f * needless;
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Launch launch{.kernel = "map_kernel", .grid = dim3(flashcore::ceil_div(s.N, threads)), .block = dim3(threads)};
#if CASE == SOUND
  launch.grid = dim3(flashcore::ceil_div(s.N, 4 * threads));
#elif CASE == LAUNCH_BOUNDS || CASE == SPILLS
  launch.grid = dim3(flashcore::ceil_div(s.N / 96, threads));
#elif CASE == FEW_BLOCKS
  launch.grid = dim3(16);
#elif CASE == ONE_BLOCK
  launch.grid = dim3(1);
#elif CASE == CHAIN
  launch.grid = dim3(132);
#elif CASE == TAIL_WAVE
  launch.grid = dim3(140);
  launch.dynamic_smem = 150 * 1024;
#elif CASE == BYTE_LOADS
  launch.grid = dim3(flashcore::ceil_div(s.N, 4 * threads));
#elif CASE == UNALIGNED
  launch.grid = dim3(flashcore::ceil_div(s.N, 8 * threads));
#elif CASE == IMBALANCE
  launch.grid = dim3(132 * 8);
#endif
  flashcore::Plan p;
#if CASE == MANY_LAUNCHES
  launch.grid = dim3(flashcore::ceil_div(s.N / 16, threads));
  for (int k = 0; k < 16; ++k) p.add(launch);
#else
  p.add(launch);
#endif
  return p;
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  for (int k = 0; k < p.count; ++k) {
    const cudaError_t error =
        flashcore::run(p.launches[k], map_kernel, stream, static_cast<const float*>(a.x), static_cast<float*>(a.out), s.N,
                       static_cast<int>(a.rounds), k * (s.N / p.count));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

FLASHCORE_VARIANT(plan, launch)
