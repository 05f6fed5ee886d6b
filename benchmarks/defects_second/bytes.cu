// pixels: out = tone(x), a curve of eight segments, byte by byte. groups: out[g] = the sum of the values with key g.
// CASE chooses one planted defect; the table is in defects.toml.
#include <flashcore/problem.h>

#define CASE_pixels_loads 1
#define CASE_pixels_stores 2
#define CASE_pixels_constant 3
#define CASE_pixels_switch 4
#define CASE_groups_global 5
#define CASE_groups_skewed 6
#define CASE_groups_last 7

constexpr int threads = 256;

#if CASE <= CASE_pixels_switch
__host__ __device__ constexpr unsigned tone(unsigned v) {
  const unsigned segment = v >> 5;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    switch (segment) {
      case 0:
        v = v * v + 3 * v + 17;
        break;
      case 1:
        v = (v ^ (v << 3)) + 29;
        break;
      case 2:
        v = (v * 5) ^ (v >> 4);
        break;
      case 3:
        v = v + ((v * v) >> 7);
        break;
      case 4:
        v = (v * v) ^ 0x5A5A;
        break;
      case 5:
        v = v * 7 + (v >> 3);
        break;
      case 6:
        v = (v ^ ((v * v) >> 5)) + 11;
        break;
      default:
        v = (v * 3) ^ (v << 2);
    }
    v &= 0xFFFF;
  }
  return v & 0xFF;
}

struct Table {
  unsigned char at[256];
  constexpr Table() : at{} {
    for (unsigned v = 0; v < 256; ++v) at[v] = static_cast<unsigned char>(tone(v));
  }
};

#if CASE == CASE_pixels_constant
__constant__
#else
__device__ const
#endif
    Table table;

using Byte = unsigned char;
constexpr int run = 32;  // bytes of a thread at once

extern "C" __global__ void pixels_kernel(const Byte* __restrict__ x, Byte* __restrict__ out, int count) {
#if CASE == CASE_pixels_switch
  // Each thread takes the branch of its byte.
  for (int i = blockIdx.x * threads + threadIdx.x; i < count; i += gridDim.x * threads) {
    out[i] = static_cast<Byte>(tone(x[i]));
  }
#else
#if CASE == CASE_pixels_constant
#define TONE(v) table.at[v]
#else
  __shared__ Byte tones[256];
  tones[threadIdx.x] = table.at[threadIdx.x];
  __syncthreads();
#define TONE(v) tones[v]
#endif
  const int stride = gridDim.x * threads * run;
  for (int i = (blockIdx.x * threads + threadIdx.x) * run; i < count; i += stride) {
    uint4 words[run / 16];
    Byte* bytes = reinterpret_cast<Byte*>(words);
#if CASE == CASE_pixels_loads
#pragma unroll
    for (int j = 0; j < run; ++j) bytes[j] = x[i + j];
#else
#pragma unroll
    for (int j = 0; j < run / 16; ++j) words[j] = reinterpret_cast<const uint4*>(x + i)[j];
#endif
#pragma unroll
    for (int j = 0; j < run; ++j) bytes[j] = static_cast<Byte>(TONE(bytes[j]));
#if CASE == CASE_pixels_stores
#pragma unroll
    for (int j = 0; j < run; ++j) out[i + j] = bytes[j];
#else
#pragma unroll
    for (int j = 0; j < run / 16; ++j) reinterpret_cast<uint4*>(out + i)[j] = words[j];
#endif
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.P % 4096) p.error = "expected a multiple of 4,096 bytes";
  return p.add({.kernel = "pixels_kernel", .grid = dim3(132 * 8), .block = dim3(threads)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], pixels_kernel, stream, static_cast<const Byte*>(a.x), static_cast<Byte*>(a.out),
                        static_cast<int>(s.P));
}

#else
constexpr int keys = 256, each = 4;  // each: keys that a thread loads at once

extern "C" __global__ void zero_kernel(int* out) { out[threadIdx.x] = 0; }

extern "C" __global__ void groups_kernel(const unsigned char* __restrict__ key, const int* __restrict__ value,
                                         int* __restrict__ out, int count, int* parts) {
#if CASE == CASE_groups_global
  // An atomic addition to global memory per element.
  const int i = (blockIdx.x * threads + threadIdx.x) * each;
  const uchar4 k = *reinterpret_cast<const uchar4*>(key + i);
  const int4 v = *reinterpret_cast<const int4*>(value + i);
  atomicAdd(out + k.x, v.x);
  atomicAdd(out + k.y, v.y);
  atomicAdd(out + k.z, v.z);
  atomicAdd(out + k.w, v.w);
#else
  // An atomic addition to shared memory per element, and one to global memory per block and key.
  __shared__ int sums[keys];
  sums[threadIdx.x] = 0;
  __syncthreads();
  for (int i = (blockIdx.x * threads + threadIdx.x) * each; i < count; i += gridDim.x * threads * each) {
    const uchar4 k = *reinterpret_cast<const uchar4*>(key + i);
    const int4 v = *reinterpret_cast<const int4*>(value + i);
    atomicAdd(sums + k.x, v.x);
    atomicAdd(sums + k.y, v.y);
    atomicAdd(sums + k.z, v.z);
    atomicAdd(sums + k.w, v.w);
  }
  __syncthreads();
#if CASE == CASE_groups_skewed
  atomicAdd(out + threadIdx.x, sums[threadIdx.x]);
#else
  // The block that is done last adds up the sums of all blocks. parts begins with the number of blocks done.
  __shared__ bool last;
  parts[keys + blockIdx.x * keys + threadIdx.x] = sums[threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(parts, 1) == static_cast<int>(gridDim.x) - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  int total = 0;
  for (unsigned block = 1; block <= gridDim.x; ++block) total += __ldcg(parts + block * keys + threadIdx.x);
  out[threadIdx.x] = total;
#endif
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.N % (threads * each)) p.error = "expected a multiple of 1,024 keys";
#if CASE == CASE_groups_global
  const unsigned grid = s.N / (threads * each);
#elif CASE == CASE_groups_last
  const unsigned grid = 1024;
  p.workspace_bytes = (1 + grid) * keys * sizeof(int);
#else
  const unsigned grid = 132 * 8;
#endif
  p.add({.kernel = "zero_kernel", .block = dim3(keys)});
  return p.add({.kernel = "groups_kernel", .grid = dim3(grid), .block = dim3(threads)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                          void* workspace, cudaStream_t stream) {
  int *out = static_cast<int*>(a.out), *parts = static_cast<int*>(workspace);
  const cudaError_t error = flashcore::run(p.launches[0], zero_kernel, stream, parts ? parts : out);
  if (error != cudaSuccess) return error;
  return flashcore::run(p.launches[1], groups_kernel, stream, static_cast<const unsigned char*>(a.key),
                        static_cast<const int*>(a.value), out, static_cast<int>(s.N), parts);
}
#endif

FLASHCORE_VARIANT(plan, launch)
