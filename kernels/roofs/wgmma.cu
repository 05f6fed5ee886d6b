// wgmma: the rate of the warpgroup-wide matrix instruction, with both operands in shared memory.
//
// One block per SM, two warpgroups with 64 × 256 of the result each, over the same 256 columns: the tile of a good
// matrix product. Four panels of A (128 rows) and of B (256), 128 bytes deep, stay in shared memory, 192 KiB. A
// loop turn starts from zero and goes over all panels twice, 32 instructions of 128 clocks, before it waits: while
// one warpgroup drains, the other keeps the pipe busy. (Two complete products would not work: the compiler removes
// the first one, whose result is never read.)
//
// The result proves the last turn, `total` all turns: it sums one element per thread and turn.
//
// ELEMENT: 16 fp16, 17 bf16, 8 fp8 e4m3.

#include <flashcore/problem.h>

#include <roofs/stopwatch.cuh>
#include <roofs/wgmma.cuh>
#include <roofs/vector.cuh>

using namespace roofs;

namespace {

constexpr int kPanels = 4;
constexpr int kWarpgroups = 2;
constexpr int kPasses = 2;  // over all panels per loop turn; repeated in the problem's file
constexpr int kThreads = kWarpgroups * 128;
constexpr int kRows = kWarpgroups * kTileRows;
constexpr int kBytesA = kRows * kRowBytes;  // per panel
constexpr int kBytesB = kTileColumns * kRowBytes;
constexpr unsigned kSharedBytes = kPanels * (kBytesA + kBytesB) + kGroupBytes;  // and space for alignment

// Copies panels of `rows` rows from row-major global memory, with swizzling.
__device__ void load_panels(char* shared, const uint4* global, int rows) {
  constexpr int kChunks = kRowBytes / 16;
  for (int i = threadIdx.x; i < kPanels * rows * kChunks; i += kThreads) {
    const int row = i / kChunks;  // counted over all panels: a panel is a multiple of eight rows
    *reinterpret_cast<uint4*>(shared + swizzled(row, i % kChunks)) = global[i];
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel(const uint4* __restrict__ a, const uint4* __restrict__ b, float* __restrict__ out,
                 float* __restrict__ total, long long* __restrict__ clocks, int iterations, int clocked) {
  extern __shared__ char memory[];
  const uint32_t unaligned = shared_address(memory);
  char* panels_a = memory + (kGroupBytes - unaligned % kGroupBytes) % kGroupBytes;
  char* panels_b = panels_a + kPanels * kBytesA;
  load_panels(panels_a, a, kRows);
  load_panels(panels_b, b, kTileColumns);
  fence_for_tensor_cores();

  // Broadcast from one lane, so that the compiler knows that the descriptor is uniform and uses uniform registers.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const uint64_t first_a = descriptor(shared_address(panels_a) + warpgroup * kTileRows * kRowBytes);
  const uint64_t first_b = descriptor(shared_address(panels_b));
  float d[kAccumulators];
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) d[i] = 0.0f;
  float sum = 0.0f;

  Stopwatch watch;
  watch.start();  // a barrier: the panels are complete
#pragma unroll 1
  for (int turn = 0; turn < iterations; ++turn) {
    warpgroup_arrive();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
        for (int step = 0; step < kStepsOfRow; ++step) {
          // Descriptors count in units of 16 bytes.
          const uint64_t on_a = first_a + (panel * kBytesA + step * kStepBytes) / 16;
          const uint64_t on_b = first_b + (panel * kBytesB + step * kStepBytes) / 16;
          multiply_async(d, on_a, on_b, pass == 0 && panel == 0 && step == 0);
        }
      }
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    sum += d[0];
  }
  watch.stop(clocks, clocked);

  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;  // a warp has 16 rows of its warpgroup's 64
  float* own = out + (static_cast<long long>(blockIdx.x) * kRows + row) * kTileColumns + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kAccumulators; i += 4) {
    *reinterpret_cast<float2*>(own + i * 2) = make_float2(d[i], d[i + 1]);
    *reinterpret_cast<float2*>(own + i * 2 + 8 * kTileColumns) = make_float2(d[i + 2], d[i + 3]);
  }
  total[blockIdx.x * kThreads + threadIdx.x] = sum;
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  const std::int64_t depth = kRowBytes / (ELEMENT == ROOFS_FP8 ? 1 : 2);
  if (s.PANELS != kPanels || s.M != kRows || s.N != kTileColumns || s.THREADS != kThreads) {
    p.error = "PANELS, M, N, THREADS must be 4, 128, 256, 256";
  }
  if (s.K != depth) p.error = "K must be 64 (fp16, bf16) or 128 (fp8)";
  if (p.error) return p;
  return p.add({"wgmma_kernel", dim3(s.BLOCKS), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], wgmma_kernel, stream, static_cast<const uint4*>(a.a),
                        static_cast<const uint4*>(a.b), static_cast<float*>(a.out), static_cast<float*>(a.total),
                        static_cast<long long*>(a.clocks), a.iterations, a.clocked);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
