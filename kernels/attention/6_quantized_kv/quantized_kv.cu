// quantized_kv: K and V as 8-bit codes in shared memory, dequantized on the way to the tensor cores.
// FORMAT = 0 (u8) or 1 (fp8 e4m3).
//
// Compared with xor_swizzle: a first kernel writes codes and a scale for each row of K and V into the
// workspace; the second one stages those. A tile takes half the shared memory and half the traffic to it,
// but each code then costs instructions to become a half, in every warp that reads it. If K and V are in L2
// anyway, that is a poor trade: expect no speedup on the mission shape.
//
// No tile of halves is ever stored: codes become operands in registers.
//   K  A lane reads 16 codes of one key, 16·t to 16·t + 15 (t = lane % 4), and uses 4 of them for each of
//      the four depth steps. The assignment of d to depth is arbitrary if Q's is the same: a lane reads the
//      same 16 columns of its rows of Q, from global memory.
//   V  ldmatrix moves pairs of bytes: transposed, a register has columns 2g and 2g + 1 of keys 2t and
//      2t + 1. Even bytes are the operand of one accumulator, odd bytes of another: accumulator 2J + e
//      has columns 16J + 2n + e, and a lane has four neighboring columns of the output.
//
// Scales are not applied to operands, where they would be rounded: K's multiplies the column of scores, V's
// the weight, both in fp32, the latter before the weight is rounded.
//
// From: FlashCore design 000, its 8-bit staging. It dequantizes (and transposes K) into a second tile in
// shared memory, which gives back the space that the codes save.

#include <attention/async_copy.cuh>
#include <attention/mma_stripe.cuh>
#include <attention/quantized.cuh>
#include <attention/shared_memory.cuh>

#include <type_traits>

#ifndef FORMAT
#define FORMAT 0
#endif
#ifndef STAGES
#define STAGES 2
#endif

namespace {

using namespace attention;

static_assert(FORMAT == 0 || FORMAT == 1, "FORMAT: 0 (u8) or 1 (fp8)");
static_assert(STAGES >= 2, "STAGES: at least 2: a single stage needs a second barrier");

using Format = std::conditional_t<FORMAT == 0, U8, Fp8>;
constexpr int kRows = 64;
constexpr int kKeys = 64;
constexpr int kStages = STAGES;
constexpr int kThreads = kRows / kMmaRows * kWarp;
constexpr int kTile = kKeys * kHeadDim;  // codes per stage of K, or of V

static_assert(kThreads == 2 * kKeys, "a thread fetches one scale of a tile: of K or of V");

constexpr int kKeysAt = 0;
constexpr int kValuesAt = after(kKeysAt, kStages * kTile);
constexpr int kScalesAt = after(kValuesAt, kStages * kTile);  // per stage: K's, then V's
constexpr int kSharedBytes = after(kScalesAt, kStages * 2 * kKeys * 4);

constexpr int kQuantizeThreads = 256;
constexpr int kLanesOfRow = kHeadDim / 8;  // in quantize_rows_kernel

// s = Q · codes of Kᵀ.
__device__ __forceinline__ void multiply_key_codes(ScoreTile<1, kKeys>& s, const QueryOperand<1>& a, const Code* keys) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kKeys / kMmaCols; ++j) {
#pragma unroll
    for (int r = 0; r < 4; ++r) s[0][j][r] = 0.0f;
    const uint4 codes = *reinterpret_cast<const uint4*>(keys + code_at(j * kMmaCols + lane / 4, lane % 4));
    const unsigned step[kDepthSteps] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int k = 0; k < kDepthSteps; ++k) {
      mma(s[0][j], a[0][k], Format::decode<0, 1>(step[k]), Format::decode<2, 3>(step[k]));
    }
  }
}

// o += P · codes of V, its columns in the order described above.
__device__ __forceinline__ void multiply_value_codes(OutputTile<1>& o, const ScoreTile<1, kKeys>& p,
                                                     const Code* values) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kKeys / kMmaDepth; ++k) {
    unsigned a[4];
    to_operand(a, p[0][2 * k], p[0][2 * k + 1]);
#pragma unroll
    for (int j = 0; j < kCodePieces; j += 2) {
      unsigned r[4];  // matrices 0, 2: keys 0 to 7; 1, 3: keys 8 to 15; 0, 1: piece j; 2, 3: piece j + 1
      load_matrices_transposed(r, shared_address(values + code_at(k * kMmaDepth + lane % 16, j + lane / 16)));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const unsigned top = r[2 * n], bottom = r[2 * n + 1];
        mma(o[0][2 * (j + n)], a, Format::decode<0, 2>(top), Format::decode<0, 2>(bottom));
        mma(o[0][2 * (j + n) + 1], a, Format::decode<1, 3>(top), Format::decode<1, 3>(bottom));
      }
    }
  }
}

// Multiplies each column of a score tile by its key's scale.
__device__ __forceinline__ void scale_columns(ScoreTile<1, kKeys>& s, const float* scales) {
#pragma unroll
  for (int j = 0; j < kKeys / kMmaCols; ++j) {
    const float2 x = *reinterpret_cast<const float2*>(scales + j * kMmaCols + threadIdx.x % 4 * 2);
    s[0][j][0] *= x.x;
    s[0][j][1] *= x.y;
    s[0][j][2] *= x.x;
    s[0][j][3] *= x.y;
  }
}

// One row of Q as this lane's operands, from global memory; rows past the end are zeros.
__device__ __forceinline__ void load_query_row(QueryOperand<1>& a, int h, const half* row, bool exists, unsigned flip) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {  // 8 of 16 columns: depth steps 2n and 2n + 1
    uint4 x = make_uint4(0, 0, 0, 0);
    if (exists) x = *reinterpret_cast<const uint4*>(row + threadIdx.x % 4 * 16 + n * 8);
    a[0][2 * n][h] = x.x ^ flip;
    a[0][2 * n][h + 2] = x.y ^ flip;
    a[0][2 * n + 1][h] = x.z ^ flip;
    a[0][2 * n + 1][h + 2] = x.w ^ flip;
  }
}

}  // namespace

// Eight lanes per row, eight values per lane. blockIdx.y: 0 for K, 1 for V, whose codes and scales follow
// those of all rows of K.
extern "C" __global__ void __launch_bounds__(kQuantizeThreads)
    quantize_rows_kernel(const half* __restrict__ k, const half* __restrict__ v, Code* __restrict__ codes,
                         float* __restrict__ scales, long long rows) {
  // phase: quantize
  const long long row = (static_cast<long long>(blockIdx.x) * kQuantizeThreads + threadIdx.x) / kLanesOfRow;
  const int col = threadIdx.x % kLanesOfRow * 8;
  const bool exists = row < rows;
  float x[8];
  to_floats(exists ? load_half8((blockIdx.y == 0 ? k : v) + row * kHeadDim + col) : zero_half8(), x);
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[i]));
  largest = warp_max<kLanesOfRow>(largest);
  if (!exists) return;
  // __fdiv_rn: fast math would use an approximate reciprocal.
  const float scale = largest > 0.0f ? __fdiv_rn(largest, Format::kLargest) : 1.0f;
  unsigned word[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) word[i / 4] |= Format::encode(__fdiv_rn(x[i], scale)) << i % 4 * 8;
  const long long at = blockIdx.y * rows + row;
  *reinterpret_cast<uint2*>(codes + at * kHeadDim + col) = make_uint2(word[0], word[1]);
  if (col == 0) scales[at] = scale * Format::kUnit;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    quantized_kv_kernel(const half* __restrict__ q, const Code* __restrict__ codes, const float* __restrict__ scales,
                        long long rows, half* __restrict__ out, int seq, float scale_log2e, unsigned flip) {
  Code* keys = shared_at<Code>(kKeysAt);
  Code* values = shared_at<Code>(kValuesAt);
  float* tile_scales = shared_at<float>(kScalesAt);

  const int lane = threadIdx.x % kWarp;
  const int first_row = blockIdx.x * kRows + threadIdx.x / kWarp * kMmaRows + lane / 4;  // this lane's upper row
  const std::size_t head = head_offset(seq);
  const long long head_row = static_cast<long long>(blockIdx.y) * seq;
  const int tiles = (seq + kKeys - 1) / kKeys;

  const auto fetch = [&](int tile) {
    if (tile < tiles) {
      const int first = tile * kKeys;
      const int left = seq - first;
      const int stage = tile % kStages;
      const Code* from = codes + (head_row + first) * kHeadDim;
      load_codes_async<kKeys, kThreads>(keys + stage * kTile, from, left);
      load_codes_async<kKeys, kThreads>(values + stage * kTile, from + rows * kHeadDim, left);
      const int key = threadIdx.x % kKeys;
      const bool exists = key < left;
      copy4_async(tile_scales + stage * 2 * kKeys + threadIdx.x,
                  scales + threadIdx.x / kKeys * rows + head_row + first + (exists ? key : 0), exists);
    }
    commit_copies();  // one group per tile, possibly empty
  };

  // phase: load
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);

  QueryOperand<1> a;
  OutputTile<1> o;
  RowPair state;
  clear<1>(o);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h;
    load_query_row(a, h, q + head + static_cast<std::size_t>(row) * kHeadDim, row < seq, flip);
  }

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();  // the oldest of kStages - 1 requested tiles, this one, has landed
    __syncthreads();             // all threads' have, and all have read the previous tile
    fetch(tile + kStages - 1);   // into the previous tile's stage

    // phase: scores
    const int stage = tile % kStages;
    const int left = seq - tile * kKeys;
    ScoreTile<1, kKeys> s;
    multiply_key_codes(s, a, keys + stage * kTile);
    scale_columns(s, tile_scales + stage * 2 * kKeys);
    // phase: softmax
    if (left < kKeys) mask_scores<1, kKeys>(s, left);
    weigh(state, s[0], o[0], scale_log2e);
    scale_columns(s, tile_scales + stage * 2 * kKeys + kKeys);
    // phase: output
    multiply_value_codes(o, s, values + stage * kTile);
  }

  // phase: other
  state.sum_lanes();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h;
    if (row >= seq) continue;
    const float f = state.l[h] > 0.0f ? __frcp_rn(state.l[h]) : 0.0f;
    half* target = out + head + static_cast<std::size_t>(row) * kHeadDim + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < kCodePieces; ++j) {
      const float(&even)[4] = o[0][2 * j];
      const float(&odd)[4] = o[0][2 * j + 1];
      *reinterpret_cast<uint2*>(target + j * 16) = make_uint2(pack_halves(even[2 * h] * f, odd[2 * h] * f),
                                                              pack_halves(even[2 * h + 1] * f, odd[2 * h + 1] * f));
    }
  }
}

namespace {

// The workspace: codes of K, codes of V, scales of K, scales of V.
flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  const std::int64_t rows = s.B * s.H * s.S;
  p.workspace_bytes = static_cast<std::size_t>(rows) * 2 * (kHeadDim + sizeof(float));
  p.add({"quantize_rows_kernel", dim3(flashcore::ceil_div(rows * kLanesOfRow, kQuantizeThreads), 2),
         dim3(kQuantizeThreads)});
  return p.add({"quantized_kv_kernel", query_grid(s, kRows), dim3(kThreads), dim3(1), kSharedBytes});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void* workspace,
                   cudaStream_t stream) {
  const std::int64_t rows = s.B * s.H * s.S;
  Code* codes = static_cast<Code*>(workspace);
  float* scales = reinterpret_cast<float*>(codes + 2 * rows * kHeadDim);
  const cudaError_t error =
      flashcore::run(p.launches[0], quantize_rows_kernel, stream, a.k, a.v, codes, scales, rows);
  if (error != cudaSuccess) return error;
  const PositiveScale scale = positive_scale(a.scale);
  return flashcore::run(p.launches[1], quantized_kv_kernel, stream, a.q, codes, scales, rows, a.out, s.S, scale.log2e,
                        scale.flip);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
