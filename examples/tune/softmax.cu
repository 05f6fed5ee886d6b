// softmax: over the rows of an fp32 matrix. WARPS, ROWS, VECTOR, KEEP, ONLINE.
//
// WARPS warps share a row, a block has ROWS rows. VECTOR: floats per load. KEEP: values of its row that a thread keeps
// in registers, so that the row is read once; 0 reads it again for each pass. ONLINE: maximum and sum in one pass
// instead of two.

#include <flashcore/problem.h>

namespace {

constexpr int kLanes = WARPS * 32;  // lanes per row
constexpr int kThreads = kLanes * ROWS;
constexpr int kStep = kLanes * VECTOR;
constexpr int kLoads = KEEP / VECTOR;
static_assert(KEEP % VECTOR == 0, "KEEP: whole loads");
static_assert(KEEP == 0 || ONLINE == 0, "a row that is kept is not passed over again");

struct alignas(4 * VECTOR) Loaded {
  float x[VECTOR];
};

struct Largest {
  static __device__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static __device__ float of(float a, float b) { return a + b; }
};

// Reduces over all lanes of a row; all of them get the result.
template <typename Op>
__device__ float joined(float x, float (&room)[ROWS][WARPS], int row) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, offset));
  if constexpr (WARPS > 1) {
    const int warp = threadIdx.x % kLanes / 32;
    __syncthreads();  // the buffer's previous contents have been read
    if (threadIdx.x % 32 == 0) room[row][warp] = x;
    __syncthreads();
    x = room[row][0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) x = Op::of(x, room[row][w]);
  }
  return x;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    softmax_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  __shared__ float room[ROWS][WARPS];
  const int own = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int row = min(static_cast<int>(blockIdx.x) * ROWS + own, rows - 1);  // the last row may be written repeatedly
  const float* from = x + static_cast<std::size_t>(row) * cols;
  float* to = out + static_cast<std::size_t>(row) * cols;
  const auto load = [&](int c) { return *reinterpret_cast<const Loaded*>(from + c); };

  float largest = from[0], sum = 0.0f;
#if KEEP
  Loaded kept[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int c = (i * kLanes + lane) * VECTOR;
    if (c < cols) kept[i] = load(c);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) {
      if ((i * kLanes + lane) * VECTOR < cols) largest = fmaxf(largest, kept[i].x[j]);
    }
  }
  largest = joined<Largest>(largest, room, own);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) {
      kept[i].x[j] = expf(kept[i].x[j] - largest);
      if ((i * kLanes + lane) * VECTOR < cols) sum += kept[i].x[j];
    }
  }
#elif ONLINE
  for (int c = lane * VECTOR; c < cols; c += kStep) {
    const Loaded v = load(c);
    float top = largest;
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) top = fmaxf(top, v.x[j]);
    sum *= expf(largest - top);
    largest = top;
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) sum += expf(v.x[j] - largest);
  }
  const float top = joined<Largest>(largest, room, own);
  sum *= expf(largest - top);
  largest = top;
#else
  for (int c = lane * VECTOR; c < cols; c += kStep) {
    const Loaded v = load(c);
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) largest = fmaxf(largest, v.x[j]);
  }
  largest = joined<Largest>(largest, room, own);
  for (int c = lane * VECTOR; c < cols; c += kStep) {
    const Loaded v = load(c);
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) sum += expf(v.x[j] - largest);
  }
#endif
  const float factor = 1.0f / joined<Sum>(sum, room, own);
#if KEEP
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int c = (i * kLanes + lane) * VECTOR;
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) kept[i].x[j] *= factor;
    if (c < cols) *reinterpret_cast<Loaded*>(to + c) = kept[i];
  }
#else
  for (int c = lane * VECTOR; c < cols; c += kStep) {
    Loaded v = load(c);
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) v.x[j] = expf(v.x[j] - largest) * factor;
    *reinterpret_cast<Loaded*>(to + c) = v;
  }
#endif
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.R > INT32_MAX - ROWS || s.C > INT32_MAX - kStep) {
    p.error = "expected R and C below 2^31: rows and columns are counted in int";
  } else if (s.C % VECTOR) {
    p.error = "expected C in whole loads of VECTOR";
  } else if (KEEP && s.C > KEEP * kLanes) {
    p.error = "expected C of at most KEEP values a thread";
  }
  if (p.error) return p;
  return p.add({"softmax_kernel", dim3(flashcore::ceil_div(s.R, ROWS)), dim3(kThreads)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], softmax_kernel, stream, a.x, a.out, s.R, s.C);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
