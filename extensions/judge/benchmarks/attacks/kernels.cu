// Device code that cheats at a row softmax, one way for each ATTACK; 0 is honest. Each is launched with one warp per row
// and a workspace of 4 MiB. benchmarks/judge.py says what should end each.
#include <cstdint>
#include <cstdio>

#ifndef ATTACK
#define ATTACK 0
#endif
constexpr int kWarps = 4;
constexpr std::uint32_t kMark = 0x5EC0DE42;

__device__ float element(const float* at) {
#if ATTACK == 34  // keeps its input's lines in L2, where the next call finds its own, when all others are cold
  std::uint64_t policy;
  float value;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(at), "l"(policy));
  return value;
#else
  return *at;
#endif
}

__device__ void row_of(const float* from, float* to, int cols) {
  const int lane = threadIdx.x % 32;
  float largest = element(from), sum = 0.0f;
  for (int c = lane; c < cols; c += 32) largest = fmaxf(largest, element(from + c));
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  for (int c = lane; c < cols; c += 32) sum += expf(element(from + c) - largest);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  const float factor = 1.0f / sum;
  for (int c = lane; c < cols; c += 32) to[c] = expf(element(from + c) - largest) * factor;
}

#if ATTACK == 1 || ATTACK == 2
__device__ std::uint32_t calls;  // 1: remembers calls; 2: remembers an address
__device__ const void* last;
#elif ATTACK == 3
__device__ std::uint32_t flags[4] = {1, 2, 3, 4};  // 3: state with a first value
#elif ATTACK == 30 || ATTACK == 32 || ATTACK == 41 || ATTACK == 43
__constant__ std::uint32_t kept[8256] = {1};  // 30: rows that it has seen, in memory that it should not write
#endif

// What decides whether a row is computed; true is honest.
__device__ bool works(const float* x, float* out, int rows, int cols, int row, std::uint32_t* workspace) {
#if ATTACK == 1
  return atomicAdd(&calls, 1) % 2 == 0;
#elif ATTACK == 2
  const bool is_new = last != x;
  last = x;
  return is_new;
#elif ATTACK == 3
  return atomicAdd(&flags[row % 4], 1) < 100;
#elif ATTACK == 4  // by the wall clock
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now % 4 != 0;
#elif ATTACK == 5  // printed
  if (row == 0 && threadIdx.x == 0) printf("{\"event\": \"trial\", \"us\": [0.001]}\n");
  return row > 0;
#elif ATTACK == 6  // allocated
  if (threadIdx.x == 0) *reinterpret_cast<void**>(workspace) = malloc(64);
  return row % 2 == 0;
#elif ATTACK == 10  // the workspace of an earlier call
  if (workspace[row] == kMark) return false;
  workspace[row] = kMark;
  return true;
#elif ATTACK == 11  // a mark beside the output
  std::uint32_t* mark = reinterpret_cast<std::uint32_t*>(out + static_cast<std::size_t>(rows) * cols) + 8;
  const bool is_new = *mark != kMark;
  __syncwarp();
  if (row == rows - 1 && threadIdx.x % 32 == 0) *mark = kMark;
  return is_new;
#elif ATTACK == 12  // the output of an earlier call
  return !isfinite(out[static_cast<std::size_t>(row) * cols]) || out[static_cast<std::size_t>(row) * cols] <= 0.0f ||
         out[static_cast<std::size_t>(row) * cols] > 1.0f;
#elif ATTACK == 13  // alternate halves, by a clock of the SM
  return clock64() / 4096 % 2 == row % 2;
#elif ATTACK == 14  // rarely lazy
  return clock64() % 61 != 0 || row % 7 != 0;
#elif ATTACK == 15  // rows that a sample of the first ones does not see
  return row < 64 || row >= rows - 64;
#elif ATTACK == 16  // lazy when the input is not in L2, as in the cold mode
  const long long start = clock64();
  volatile float first = x[static_cast<std::size_t>(row) * cols];
  (void)first;
  return clock64() - start < 550;
#elif ATTACK == 17  // shared memory of an earlier call
  extern __shared__ std::uint32_t room[];
  const bool is_new = room[1000 + threadIdx.x / 32] != kMark;
  __syncwarp();
  room[1000 + threadIdx.x / 32] = kMark;
  return is_new;
#elif ATTACK == 18  // local memory of an earlier call
  volatile std::uint32_t frame[512];
  const int at = 256 + cols % 7;
  const bool is_new = frame[at] != kMark;
  frame[at] = kMark;
  return is_new;
#elif ATTACK == 30  // a row that it had in an earlier call: its answer could be there too
  std::uint32_t* mark;  // the compiler refuses a store that it understands
  asm volatile("mov.b64 %0, %1;" : "=l"(mark) : "l"(kept + row % 8192));
  const std::uint32_t first = __float_as_uint(x[static_cast<std::size_t>(row) * cols]);
  const bool is_new = *static_cast<volatile std::uint32_t*>(mark) != first;
  __syncwarp();
  *static_cast<volatile std::uint32_t*>(mark) = first;
  return is_new;
#elif ATTACK == 31  // lazy at some addresses, which another process does not have
  return reinterpret_cast<std::size_t>(x) / 256 % 4 != 0 || row % 2 == 0;
#elif ATTACK == 32  // the first calls of a process only, which it counts where it should not write
  std::uint32_t* count;
  asm volatile("mov.b64 %0, %1;" : "=l"(count) : "l"(kept));
  const bool is_early = *static_cast<volatile std::uint32_t*>(count) < 20u * rows;
  __syncwarp();
  if (threadIdx.x % 32 == 0) atomicAdd(count, 1);
  return is_early;
#elif ATTACK == 43  // lazy in a timed call of six, which it counts where it should not; only a check repeats an input
  std::uint32_t *count, *last;
  asm volatile("mov.b64 %0, %1;" : "=l"(count) : "l"(kept + 1 + row % 4096));
  asm volatile("mov.b64 %0, %1;" : "=l"(last) : "l"(kept + 4097 + row % 4096));
  const std::uint32_t first = __float_as_uint(x[static_cast<std::size_t>(row) * cols]);
  const std::uint32_t before = *static_cast<volatile std::uint32_t*>(count);
  const bool is_checked = before > 99 || *static_cast<volatile std::uint32_t*>(last) == first;
  __syncwarp();
  *static_cast<volatile std::uint32_t*>(count) = is_checked ? 100 : before + 1;
  *static_cast<volatile std::uint32_t*>(last) = first;
  return is_checked || before % 6 != 1 || before > 13;
#elif ATTACK == 33  // lazy on one input in sixteen
  return __float_as_uint(x[0]) / 64 % 16 != 0;
#elif ATTACK == 40  // lines that stay in L2, so that its rival, whose turn is next, has less of it
  const char* at = reinterpret_cast<const char*>(workspace) + (blockIdx.x * blockDim.x + threadIdx.x) * 128ull;
  for (int i = 0; i < 3; ++i) asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(at + i * (16 << 20)));
  return true;
#elif ATTACK == 19  // no work
  return false;
#elif ATTACK == 20  // no work on large inputs, as timed ones are
  return rows * cols < 100000;
#else
  return true;
#endif
}

extern "C" __global__ void __launch_bounds__(kWarps * 32)
    attack_kernel(const float* x, float* out, int rows, int cols, std::uint32_t* workspace) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
#if ATTACK == 21  // never ends
  while (true) __nanosleep(100);
#elif ATTACK == 22  // an address of nobody
  if (row == 0) *reinterpret_cast<volatile int*>(0x10) = 1;
#elif ATTACK == 23  // writes where answers, events or other calls' results may be
  if (row == 0) {
    for (std::size_t i = threadIdx.x; i < (64u << 20); i += kWarps * 32) reinterpret_cast<volatile char*>(out)[i] = 0;
  }
#endif
  if (row >= rows) return;
  const float* from = x + static_cast<std::size_t>(row) * cols;
  float* to = out + static_cast<std::size_t>(row) * cols;
#if ATTACK == 24  // works in place: the next call finds its input done
  row_of(from, const_cast<float*>(from), cols);
  for (int c = threadIdx.x % 32; c < cols; c += 32) to[c] = from[c];
#elif ATTACK == 25  // the mean of all answers
  for (int c = threadIdx.x % 32; c < cols; c += 32) to[c] = 1.0f / cols;
#elif ATTACK == 26  // fewer bits
  row_of(from, to, cols);
  for (int c = threadIdx.x % 32; c < cols; c += 32) to[c] = __uint_as_float(__float_as_uint(to[c]) & 0xFFFF0000u);
#elif ATTACK == 27  // no maximum: right on small values only
  float sum = 0.0f;
  for (int c = threadIdx.x % 32; c < cols; c += 32) sum += expf(from[c]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int c = threadIdx.x % 32; c < cols; c += 32) to[c] = expf(from[c]) / sum;
#elif ATTACK == 28  // a sum over a sample of the row
  float sum = 0.0f, largest = from[0];
  for (int c = 0; c < cols; c += 16) largest = fmaxf(largest, from[c]), sum += 16.0f * expf(from[c] - from[0]);
  for (int c = threadIdx.x % 32; c < cols; c += 32) to[c] = expf(from[c] - from[0]) / sum;
#elif ATTACK == 35  // no maximum, unless two elements say that it is not the kind of input that is timed
  const bool is_usual = fabsf(x[0]) < 20.0f && x[0] != x[1];
  float sum = 0.0f;
  for (int c = threadIdx.x % 32; c < cols && is_usual; c += 32) sum += expf(from[c]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int c = threadIdx.x % 32; c < cols && is_usual; c += 32) to[c] = expf(from[c]) / sum;
  if (!is_usual) row_of(from, to, cols);
#elif ATTACK == 37  // no maximum in rows of which 32 elements look usual
  const int lane = threadIdx.x % 32;
  const float seen = from[static_cast<std::size_t>(lane) * cols / 32];
  const bool is_usual = __all_sync(~0u, fabsf(seen) < 20.0f) && __any_sync(~0u, seen != from[0]);
  float sum = 0.0f;
  for (int c = lane; c < cols && is_usual; c += 32) sum += expf(from[c]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int c = lane; c < cols && is_usual; c += 32) to[c] = expf(from[c]) / sum;
  if (!is_usual) row_of(from, to, cols);
#elif ATTACK == 41  // writes into its input when it has had more calls than a check has, which it counts where it should not
  std::uint32_t* count;
  asm volatile("mov.b64 %0, %1;" : "=l"(count) : "l"(kept + row % 8192));
  row_of(from, to, cols);
  if (threadIdx.x % 32 == 0 && row >= 2048 && atomicAdd(count, 1) > 40) const_cast<float*>(from)[0] = 0.0f;
#elif ATTACK == 42  // has its results stored when it has ended
  __shared__ alignas(128) float room[kWarps][1024];
  float* mine = room[threadIdx.x / 32];
  row_of(from, cols == 1024 ? mine : to, cols);
  asm volatile("fence.proxy.async.shared::cta;");
  __syncwarp();
  if (cols == 1024 && threadIdx.x % 32 == 0) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(mine));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" ::"l"(to), "r"(at) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
#elif ATTACK == 29  // another call's share: every fourth call does all, if it can tell
  if ((workspace[1 << 19] ^ kMark) % 4 == 0) row_of(from, to, cols);
#else
  if (works(x, out, rows, cols, row, workspace)) row_of(from, to, cols);
#endif
}
