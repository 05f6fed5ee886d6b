// mma_sync: the rate of the warp-wide matrix instruction, with operands and accumulators in registers.
//
// A warp has 64 × 32 of the result (16 independent accumulators) and four steps of both operands. One loop turn
// is a complete product: every step of A with every step of B, 256 instructions, of which the first 16 start
// from zero. A block has 8 warps of 64 rows each; all share the same 32 columns.
//
// The result proves the last turn, `total` all turns: it sums one element per thread and turn.
//
// ELEMENT: 16 fp16, 17 bf16, 8 fp8 e4m3. sm_90 has no warp-wide fp8 instruction: the compiler would convert to
// fp16, with twice as many instructions plus conversions, so that is no roof there.

#include <flashcore/problem.h>

#include <roofs/matrix.cuh>
#include <roofs/stopwatch.cuh>

using namespace roofs;

namespace {

constexpr int kSteps = 4;
constexpr int kRowTiles = 4;     // of 16 rows, per warp
constexpr int kColumnTiles = 4;  // of 8 columns
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kWarps * kRowTiles * 16;
constexpr int kColumns = kColumnTiles * 8;
constexpr int kRowBytes = kSteps * kStepBytes;

__device__ uint32_t word_at(const char* base, int row, int byte) {
  return *reinterpret_cast<const uint32_t*>(base + row * kRowBytes + byte);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    mma_sync_kernel(const char* __restrict__ a, const char* __restrict__ b, float* __restrict__ out,
                    float* __restrict__ total, long long* __restrict__ clocks, int iterations, int clocked) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int first_row = threadIdx.x / 32 * kRowTiles * 16;

  FragmentA rows[kSteps][kRowTiles];
  FragmentB columns[kSteps][kColumnTiles];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int byte = s * kStepBytes + 4 * t;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        rows[s][m].word[w] = word_at(a, first_row + m * 16 + g + w % 2 * 8, byte + w / 2 * 16);
      }
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int w = 0; w < 2; ++w) columns[s][n].word[w] = word_at(b, n * 8 + g, byte + w * 16);
    }
  }

  FragmentC c[kRowTiles][kColumnTiles] = {};
  float sum = 0.0f;
  Stopwatch watch;
  watch.start();
#pragma unroll 1
  for (int turn = 0; turn < iterations; ++turn) {
#pragma unroll
    for (int shift = 0; shift < kSteps; ++shift) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
          for (int n = 0; n < kColumnTiles; ++n) {
            multiply(c[m][n], rows[s][m], columns[(s + shift) % kSteps][n], shift == 0 && s == 0);
          }
        }
      }
    }
    sum += c[0][0].value[0];  // its last product was 15 instructions ago
  }
  watch.stop(clocks, clocked);

  float* own = out + static_cast<long long>(blockIdx.x) * kRows * kColumns;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + m * 16 + g + half * 8;
        *reinterpret_cast<float2*>(own + row * kColumns + n * 8 + 2 * t) =
            make_float2(c[m][n].value[2 * half], c[m][n].value[2 * half + 1]);
      }
    }
  }
  total[blockIdx.x * kThreads + threadIdx.x] = sum;
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  const std::int64_t depth = kRowBytes / (ELEMENT == ROOFS_FP8 ? 1 : 2);
  if (s.M != kRows || s.N != kColumns || s.THREADS != kThreads) p.error = "M, N, THREADS must be 512, 32, 256";
  if (s.K != depth) p.error = "K must be 64 (fp16, bf16) or 128 (fp8)";
  if (p.error) return p;
  return p.add({"mma_sync_kernel", dim3(s.BLOCKS), dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], mma_sync_kernel, stream, static_cast<const char*>(a.a),
                        static_cast<const char*>(a.b), static_cast<float*>(a.out), static_cast<float*>(a.total),
                        static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
