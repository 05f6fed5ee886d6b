// Decoding: a few query rows against long K and V, fp16 or bf16, D = 128.
//
// Every byte of K and V is read once and used for few products, so DRAM is the limit: an SM must only keep enough
// copies under way. A block has one K/V head and a range of keys. One warp requests tiles of keys by bulk tensor copies
// into a ring; the others wait for a tile, multiply (mma.sync) and release it. All query rows that share the K/V head
// are packed into the 16, 32 or 64 rows of these products: with 16 rows each of the four warps takes every fourth tile,
// with 64 each has 16 of the rows. Two blocks fit on an SM: 128 KiB of copies under way, where 30 cover DRAM's
// latency.
//
// Each warp has its own running maximum, sum and output (see attention/softmax.cuh). They are merged through shared
// memory; the parts of a split head go to the workspace, in fp32, and a second kernel merges them, always in the same
// order: repeats are bit-equal.
//
//   PACK          0: a block per query head, which alone reads its K and V
//   WAVES         keys are split so that blocks fill all SMs so many times; 0: a block has all keys
//   PROGRAMMATIC  1: programmatic dependent launches: a kernel sets up before its predecessor has ended

#define WRITE_LSE 0
#include <attention/hopper/tensor_copy.cuh>
#include <attention/hopper/tensor_map.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>
#include <attention/stripes/forward.cuh>
#include <flashcore/problem.h>

#include <algorithm>

#ifndef PACK
#define PACK 1
#endif
#ifndef WAVES
#define WAVES 1
#endif
#ifndef PROGRAMMATIC
#define PROGRAMMATIC 1
#endif
#ifndef MULTIPROCESSORS
#define MULTIPROCESSORS 132  // of an H100 or H200; other numbers cost time, not correctness
#endif

namespace {

using attention::finite_shift;
using attention::kMasked;
using hopper::exp2_unit;
using hopper::kPanelColumns;
using hopper::kPanelRowBytes;
using hopper::pack;

constexpr int kDim = 128;
constexpr int kKeys = 32;  // of a tile
constexpr int kStages = 4;
constexpr int kWarps = 4;  // that multiply; one more requests tiles
constexpr int kThreads = (kWarps + 1) * 32;
constexpr int kBlocksOfSm = 2;
constexpr int kLargestRows = kWarps * 16;
constexpr int kPanelBytes = kKeys * kPanelRowBytes;
constexpr int kTileBytes = kDim / kPanelColumns * kPanelBytes;  // K or V
constexpr int kStageBytes = 2 * kTileBytes;

// Parts replace the ring: a line of floats for each warp's row, padded so that eight lines start in different banks.
constexpr int kLine = kDim + 8;
constexpr int kStatesAt = kStages * kStageBytes;
constexpr int kBarriersAt = kStatesAt + kLargestRows * sizeof(float2);
constexpr int kSharedBytes = kBarriersAt + 2 * kStages * sizeof(hopper::Barrier);
static_assert(kLargestRows * kLine * sizeof(float) <= kStatesAt, "parts fit into the ring");
// Tiles may arrive in another order than they were requested. A group that waited at a stage of which another group had
// yet to take a tile would mistake the phase before that for its own.
static_assert(kStages % kWarps == 0, "a stage's tiles are all of one group");
static_assert(kBlocksOfSm * (kSharedBytes + 1024) <= 228 * 1024, "shared memory of an SM");

constexpr int kCombineWarps = 8;
constexpr int kMostSplits = 32 * kCombineWarps;  // a lane for each

struct Problem {
  int keys, tiles, splits;
  int rows, row_tiles;  // query rows of a block's head; their tiles
  int kv_heads, sharing;  // K/V heads of a batch; query heads that each have blocks of their own for one K/V head
  float scale_log2e;
};

// Parts of split heads: [split][head's row], unnormalised.
struct Parts {
  float4* out;     // kDim / 4 of each row
  float2* states;  // (m, l) of each row
  long long rows;  // of all heads
};

__device__ __forceinline__ void release_successor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void await_predecessor() {
#if PROGRAMMATIC
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void add(float4& sum, float factor, const float4& x) {
  sum.x = fmaf(factor, x.x, sum.x);
  sum.y = fmaf(factor, x.y, sum.y);
  sum.z = fmaf(factor, x.z, sum.z);
  sum.w = fmaf(factor, x.w, sum.w);
}

__device__ __forceinline__ void store(uint2* out, const float4& sum, float l) {
  const float inverse = 1.0f / l;
  *out = make_uint2(pack(sum.x * inverse, sum.y * inverse), pack(sum.z * inverse, sum.w * inverse));
}

// A warp's 16 query rows as left operands.
__device__ __forceinline__ void load_queries(uint32_t (&a)[kDim / 16][4], const uint32_t* q, int row, int rows) {
  const int column = threadIdx.x % 4;  // in pairs
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of = row + i % 2 * 8;
      a[step][i] = of < rows ? q[of * (kDim / 2) + step * 8 + i / 2 * 4 + column] : 0;
    }
  }
}

struct State {
  float o[kDim / 8][4] = {};
  float m[2] = {kMasked, kMasked};
  float l[2] = {};
};

// Takes in a tile of keys, of which `left` exist: at least one.
__device__ __forceinline__ void take_in(State& state, const uint32_t (&a)[kDim / 16][4], uint32_t keys, int left,
                                        float scale_log2e) {
  const int lane = threadIdx.x % 32;
  const uint32_t values = keys + kTileBytes;
  // phase: scores
  float s[kKeys / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      uint32_t b[4];
      stripes::load_matrices(b, keys + i / 2 * kPanelBytes + (j * 8 + lane % 8) * kPanelRowBytes +
                                    ((i % 2 * 4 + lane / 8) ^ lane % 8) * 16);
      stripes::multiply(s[j], a[2 * i], b[0], b[1]);
      stripes::multiply(s[j], a[2 * i + 1], b[2], b[3]);
    }
  }
  if (left < kKeys) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (j * 8 + lane % 4 * 2 + i % 2 >= left) s[j][i] = kMasked;
      }
    }
  }
  // phase: softmax
  uint32_t w[kKeys / 8][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = kMasked;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
    const float raised = fmaxf(state.m[h], attention::warp_max<4>(top) * scale_log2e);
    const float factor = exp2_unit(state.m[h] - raised);
    state.m[h] = raised;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const float x = exp2_unit(fmaf(s[j][2 * h], scale_log2e, -raised));
      const float y = exp2_unit(fmaf(s[j][2 * h + 1], scale_log2e, -raised));
      sum += x + y;
      w[j][h] = pack(x, y);
    }
    state.l[h] = fmaf(state.l[h], factor, sum);
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      state.o[j][2 * h] *= factor;
      state.o[j][2 * h + 1] *= factor;
    }
  }
  // phase: output
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const uint32_t weights[4] = {w[2 * step][0], w[2 * step][1], w[2 * step + 1][0], w[2 * step + 1][1]};
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      uint32_t b[4];
      stripes::load_matrices_transposed(b, values + j / 4 * kPanelBytes + (step * 16 + lane % 16) * kPanelRowBytes +
                                               ((j % 4 * 2 + lane / 16) ^ lane % 8) * 16);
      stripes::multiply(state.o[2 * j], weights, b[0], b[1]);
      stripes::multiply(state.o[2 * j + 1], weights, b[2], b[3]);
    }
  }
}

template <int kRows>
__device__ __forceinline__ void decode(const CUtensorMap& k, const CUtensorMap& v, const uint32_t* q, uint2* out,
                                       const Parts& parts, const Problem& p) {
  constexpr int kRowWarps = kRows / 16;
  constexpr int kGroups = kWarps / kRowWarps;  // each takes every kGroups-th tile
  const uint32_t memory = attention::shared_address(attention::dynamic_shared);
  const uint32_t full = memory + kBarriersAt, empty = full + kStages * sizeof(hopper::Barrier);
  float* lines = attention::shared_at<float>(0);
  float2* states = attention::shared_at<float2>(kStatesAt);

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(attention::kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);  // uniform
  const int head = blockIdx.y, split = blockIdx.x / p.row_tiles;
  const int first_row = blockIdx.x % p.row_tiles * kRows;
  const int first_tile = p.tiles * split / p.splits;
  const int tiles = p.tiles * (split + 1) / p.splits - first_tile;
  const long long first_of_head = static_cast<long long>(head) * p.rows;

  // phase: setup
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::init_barrier(full + i * 8, 1);
      hopper::init_barrier(empty + i * 8, kRowWarps);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  await_predecessor();

  State state;
  if (warp == kWarps) {
    // phase: load
    if (lane == 0) {
      const int kv_head = head / p.sharing % p.kv_heads, batch = head / p.sharing / p.kv_heads;
      for (int t = 0; t < tiles; ++t) {
        const int stage = t % kStages, key = (first_tile + t) * kKeys;
        const uint32_t to = memory + stage * kStageBytes, here = full + stage * 8;
        if (t >= kStages) hopper::wait(empty + stage * 8, (t / kStages - 1) & 1);
        hopper::arrive_expecting(here, kStageBytes);
#pragma unroll
        for (int i = 0; i < kDim / kPanelColumns; ++i) {
          hopper::copy_box(to + i * kPanelBytes, k, i * kPanelColumns, key, kv_head, batch, here);
          hopper::copy_box(to + kTileBytes + i * kPanelBytes, v, i * kPanelColumns, key, kv_head, batch, here);
        }
      }
      release_successor();  // its blocks wait for this kernel's end
    }
    __syncwarp();
  } else {
    uint32_t a[kDim / 16][4];
    load_queries(a, q + first_of_head * (kDim / 2), first_row + warp % kRowWarps * 16 + lane / 4, p.rows);
    int stage = warp / kRowWarps, parity = 0;
    int left = p.keys - (first_tile + stage) * kKeys;  // from this warp's tile to the last key
    const int end = p.keys - (first_tile + tiles) * kKeys;
    for (; left > end; left -= kGroups * kKeys) {
      hopper::wait(full + stage * 8, parity);
      take_in(state, a, memory + stage * kStageBytes, left, p.scale_log2e);
      __syncwarp();  // all lanes have read the tile
      if (lane == 0) hopper::arrive(empty + stage * 8);
      stage += kGroups;
      if (stage >= kStages) {
        stage -= kStages;
        parity ^= 1;
      }
    }
  }
  // phase: merge
  __syncthreads();  // all tiles have arrived and have been read
  if (warp < kWarps) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int line = warp * 16 + lane / 4 + h * 8;
      const float l = attention::warp_sum<4>(state.l[h]);
      if (lane % 4 == 0) states[line] = make_float2(state.m[h], l);
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        *reinterpret_cast<float2*>(lines + line * kLine + j * 8 + lane % 4 * 2) =
            make_float2(state.o[j][2 * h], state.o[j][2 * h + 1]);
      }
    }
  }
  __syncthreads();  // all lines are written
  for (int row = warp; row < kRows && first_row + row < p.rows; row += kWarps + 1) {
    float top = kMasked, l = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) top = fmaxf(top, states[g * kRows + row].x);
    float4 sum = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {  // a group without tiles has the factor 0
      const float2 state = states[g * kRows + row];
      const float factor = exp2_unit(state.x - top);
      l = fmaf(factor, state.y, l);
      add(sum, factor, *reinterpret_cast<const float4*>(lines + (g * kRows + row) * kLine + lane * 4));
    }
    const long long at = first_of_head + first_row + row;
    if (p.splits == 1) {
      store(out + at * (kDim / 4) + lane, sum, l);
    } else {
      const long long part = split * parts.rows + at;
      parts.out[part * (kDim / 4) + lane] = sum;
      if (lane == 0) parts.states[part] = make_float2(top, l);
    }
  }
}

}  // namespace

#define DECODE(rows)                                                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads, kBlocksOfSm)                                       \
      decode_##rows##_kernel(const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,  \
                             const uint32_t* __restrict__ q, uint2* __restrict__ out, const Parts parts,    \
                             const Problem p) {                                                             \
    decode<rows>(k, v, q, out, parts, p);                                                                   \
  }
DECODE(16)
DECODE(32)
DECODE(64)

// A block merges the parts of one row: each warp every kCombineWarps-th part, relative to their own maximum, so that
// loads wait neither for each other nor for another warp.
extern "C" __global__ void __launch_bounds__(kCombineWarps * 32)
    combine_kernel(uint2* __restrict__ out, const Parts parts, int splits) {
  constexpr int kBatch = 4;  // loads under way
  __shared__ float4 sums[kCombineWarps][kDim / 4];
  __shared__ float2 states[kCombineWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long row = blockIdx.x;
  await_predecessor();
  release_successor();
  const int part = warp + lane * kCombineWarps;  // the part whose state this lane has
  const float2 state = part < splits ? parts.states[part * parts.rows + row] : make_float2(kMasked, 0.0f);
  const float warp_top = attention::warp_max(state.x);
  const float factor = exp2_unit(state.x - finite_shift(warp_top));
  const float warp_l = attention::warp_sum(factor * state.y);
  float4 sum = {};
  for (int i = 0; warp + i * kCombineWarps < splits; i += kBatch) {
    float4 x[kBatch];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int s = warp + (i + n) * kCombineWarps;
      x[n] = s < splits ? parts.out[(s * parts.rows + row) * (kDim / 4) + lane] : float4{};
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) add(sum, __shfl_sync(attention::kAllLanes, factor, i + n), x[n]);
  }
  sums[warp][lane] = sum;
  if (lane == 0) states[warp] = make_float2(warp_top, warp_l);
  __syncthreads();
  if (warp != 0) return;
  float top = kMasked, l = 0.0f;
#pragma unroll
  for (int w = 0; w < kCombineWarps; ++w) top = fmaxf(top, states[w].x);
  sum = {};
#pragma unroll
  for (int w = 0; w < kCombineWarps; ++w) {  // a warp without parts has the factor 0
    const float f = exp2_unit(states[w].x - top);
    l = fmaf(f, states[w].y, l);
    add(sum, f, sums[w][lane]);
  }
  store(out + row * (kDim / 4) + lane, sum, l);
}

namespace {

struct BlockKernel {
  int rows;
  const char* name;
  decltype(&decode_16_kernel) kernel;
};

constexpr BlockKernel kKernels[] = {{16, "decode_16_kernel", decode_16_kernel},
                                    {32, "decode_32_kernel", decode_32_kernel},
                                    {64, "decode_64_kernel", decode_64_kernel}};

struct Sizes {
  int heads, rows;  // of queries: heads with blocks of their own, and rows of each
  int tiles, row_tiles, splits;
  BlockKernel block;

  explicit Sizes(const flashcore::Shape& s) {
    const std::int64_t sharing = s.H / s.HKV;
    heads = static_cast<int>(s.B * (PACK ? s.HKV : s.H));
    rows = static_cast<int>(s.R * (PACK ? sharing : 1));
    tiles = static_cast<int>(flashcore::ceil_div(s.S, kKeys));
    block = kKernels[rows <= 16 ? 0 : rows <= 32 ? 1 : 2];
    row_tiles = static_cast<int>(flashcore::ceil_div(rows, block.rows));
    // Each has a tile for each warp.
    const std::int64_t places = WAVES * kBlocksOfSm * MULTIPROCESSORS / (heads * row_tiles);
    splits = static_cast<int>(std::clamp<std::int64_t>(places, 1, std::clamp(tiles / kWarps, 1, kMostSplits)));
  }
};

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.D != kDim) p.error = "expected head dimension D = 128; this variant is compiled for it alone";
  if (s.S < 1 || s.S > (1 << 22)) p.error = "expected a sequence length S from 1 to 4,194,304";
  if (s.HKV < 1 || s.H % s.HKV != 0) p.error = "expected query heads H in whole groups for each of the HKV key heads";
  if (s.B < 1 || s.R < 1 || s.B * s.H > 65535) p.error = "expected a query row, and 1 to 65,535 (batch, head) pairs";
  if (s.B * s.H * s.R > (1 << 24)) p.error = "expected at most 2^24 query rows";
  if (p.error) return p;
  const Sizes sizes(s);
  p.add({.kernel = sizes.block.name,
         .grid = dim3(sizes.splits * sizes.row_tiles, sizes.heads),
         .block = dim3(kThreads),
         .dynamic_smem = kSharedBytes,
         .programmatic = PROGRAMMATIC != 0});
  if (sizes.splits == 1) return p;
  const std::int64_t rows = s.B * s.H * s.R;
  p.workspace_bytes = sizes.splits * rows * (kDim * sizeof(float) + sizeof(float2));
  return p.add({.kernel = "combine_kernel",
                .grid = dim3(static_cast<unsigned>(rows)),
                .block = dim3(kCombineWarps * 32),
                .programmatic = PROGRAMMATIC != 0});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  if (!(a.scale > 0)) return cudaErrorInvalidValue;  // the maximum is taken before scores are scaled
  const Sizes sizes(s);
  CUtensorMap k, v;
  const std::int64_t strides[4] = {s.HKV * s.S * kDim, s.S * kDim, kDim, 1};
  for (const cudaError_t error : {hopper::describe(k, a.k, strides, s.B, s.HKV, s.S, kDim, kKeys),
                                  hopper::describe(v, a.v, strides, s.B, s.HKV, s.S, kDim, kKeys)}) {
    if (error != cudaSuccess) return error;
  }
  const std::int64_t rows = s.B * s.H * s.R;
  float4* first = static_cast<float4*>(workspace);
  const Parts parts = {first, reinterpret_cast<float2*>(first + sizes.splits * rows * (kDim / 4)), rows};
  const Problem problem = {static_cast<int>(s.S), sizes.tiles, sizes.splits, sizes.rows, sizes.row_tiles,
                           static_cast<int>(s.HKV), PACK ? 1 : static_cast<int>(s.H / s.HKV),
                           attention::exp2_scale(a.scale)};
  uint2* out = static_cast<uint2*>(a.out);
  const cudaError_t error = flashcore::run(p.launches[0], sizes.block.kernel, stream, k, v,
                                           static_cast<const uint32_t*>(a.q), out, parts, problem);
  if (error != cudaSuccess || sizes.splits == 1) return error;
  return flashcore::run(p.launches[1], combine_kernel, stream, out, parts, sizes.splits);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
