// Device code that cheats at a row softmax by what it finds in memory around its own code, one way for each ATTACK. It is
// compiled with -rdc=true and linked, so that a function's address is that of its code. benchmarks/judge.py says more.
#include <cstdint>

using Word = volatile std::uint64_t;
constexpr std::uint64_t kAround = 512 << 10;  // bytes

__device__ __noinline__ unsigned anchor(unsigned a) { return a * 77 + static_cast<unsigned>(clock64()); }
__device__ std::uint64_t own_code() {
  unsigned (*at)(unsigned) = anchor;
  asm volatile("" : "+l"(at));
  return reinterpret_cast<std::uint64_t>(at) & ~127ull;
}

__device__ bool works(int row) {
  const std::uint64_t here = own_code();
#if ATTACK == 36  // takes the store out of the kernel that flushes L2: cold calls find their input there
  static_cast<void>(row);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (std::uint64_t at = here - kAround + 16 * thread; at < here + kAround; at += 16 * threads) {
    Word* code = reinterpret_cast<Word*>(at);
    if (code[0] == 0x0000001005027825 && code[2] == 0x0000000802007986) code[3] = 0x000fc00000000000, code[2] = 0x7918;
  }
#elif ATTACK == 38  // counts its calls in its own code, in an instruction that is never reached
  std::uint64_t at = here;
  while (*reinterpret_cast<Word*>(at) % (1ull << 32) != 0x7918) at += 16;
  volatile std::uint32_t* count = reinterpret_cast<volatile std::uint32_t*>(at + 20);
  const bool is_early = *count < 40;
  if (row == 0 && threadIdx.x == 0) *count = *count + 1;
  return is_early;
#elif ATTACK == 39  // puts back what may be the time of an event: nanoseconds since 1970
  static_cast<void>(row);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (std::uint64_t at = here - kAround + 8 * thread; at < here + kAround; at += 8 * threads) {
    Word* time = reinterpret_cast<Word*>(at);
    if (*time >> 57 == 0x18 >> 1) *time = *time + 3000;
  }
#endif
  return true;
}

extern "C" __global__ void __launch_bounds__(128)
    attack_kernel(const float* x, float* out, int rows, int cols, std::uint32_t* workspace) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!works(row) || row >= rows) return;
  const float* from = x + static_cast<std::size_t>(row) * cols;
  float* to = out + static_cast<std::size_t>(row) * cols;
  float largest = from[0], sum = 0.0f;
  for (int c = lane; c < cols; c += 32) largest = fmaxf(largest, from[c]);
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  for (int c = lane; c < cols; c += 32) sum += expf(from[c] - largest);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  float factor;
  asm("rcp.approx.f32 %0, %1;" : "=f"(factor) : "f"(sum));  // a division would be a call
  for (int c = lane; c < cols; c += 32) to[c] = expf(from[c] - largest) * factor;
}
