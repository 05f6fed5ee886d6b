// A warp and its 16·kStripes query rows with everything in registers: Q, scores, weights and output.
//
// In each stripe of 16 rows, a lane has two of every 8 columns of rows g = lane / 4 and g + 8: the four lanes
// of a quad share a row, so a row's maximum takes two shuffles. Scores become weights in place, which already
// have the layout of P·V's left operand (see mma.cuh): between the two products nothing passes through
// shared memory, and no other warp is waited for.
#pragma once

#include <attention/half8.cuh>
#include <attention/ldmatrix.cuh>
#include <attention/mma.cuh>
#include <attention/reduce.cuh>
#include <attention/softmax.cuh>
#include <attention/swizzle.cuh>

namespace attention {

constexpr int kDepthSteps = kHeadDim / kMmaDepth;  // of Q·Kᵀ
constexpr int kOutCols = kHeadDim / kMmaCols;      // accumulators across the output

template <int kStripes>
using QueryOperand = unsigned[kStripes][kDepthSteps][4];
template <int kStripes, int kKeys>
using ScoreTile = float[kStripes][kKeys / kMmaCols][4];
template <int kStripes>
using OutputTile = float[kStripes][kOutCols][4];

// The softmax scale in the form that the kernels here need: positive, so that the largest product is the
// largest score, and scaling and subtracting the maximum are one FMA. A negative scale becomes a change of
// sign of Q (`flip` is XORed to its halves); 0 becomes so small that all weights are 1.
struct PositiveScale {
  float log2e;
  unsigned flip;
};

inline PositiveScale positive_scale(double scale) {
  const float s = exp2_scale(scale < 0 ? -scale : scale);
  return {s < 1e-30f ? 1e-30f : s, scale < 0 ? 0x80008000u : 0u};
}

// Largest score and sum of weights of this lane's rows: g and g + 8 of a stripe.
struct RowPair {
  float m[2] = {kMasked, kMasked};
  float l[2] = {0.0f, 0.0f};  // over this lane's own keys until sum_lanes()

  // Adds up the quad's sums.
  __device__ __forceinline__ void sum_lanes() {
    l[0] = warp_sum<4>(l[0]);
    l[1] = warp_sum<4>(l[1]);
  }
};

// Loads Q's rows from a tile in shared memory.
template <typename Layout, int kStripes>
__device__ __forceinline__ void load_queries(QueryOperand<kStripes>& a, const half* queries, unsigned flip) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
#pragma unroll
    for (int k = 0; k < kDepthSteps; ++k) {
      load_matrices(a[i][k], shared_address(queries + Layout::at(i * kMmaRows + lane % 16, 2 * k + lane / 16)));
#pragma unroll
      for (int r = 0; r < 4; ++r) a[i][k][r] ^= flip;
    }
  }
}

// Applies load_queries()'s `flip` separately, for kernels that rarely need it.
template <int kStripes>
__device__ __forceinline__ void flip_queries(QueryOperand<kStripes>& a, unsigned flip) {
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
#pragma unroll
    for (int k = 0; k < kDepthSteps; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[i][k][r] ^= flip;
    }
  }
}

// s = Q · Kᵀ, raw. K is stored as [key][d], which is the right operand by columns: no transposition.
template <typename Layout, int kStripes, int kKeys>
__device__ __forceinline__ void multiply_keys(ScoreTile<kStripes, kKeys>& s, const QueryOperand<kStripes>& a,
                                              const half* keys) {
  const int lane = threadIdx.x % kWarp;
  const int row = lane % 8 + lane / 16 * 8;  // matrices 0, 1: keys 0 to 7; 2, 3: keys 8 to 15
  const int side = lane / 8 % 2;             // matrices 0, 2: d 0 to 7; 1, 3: d 8 to 15
#pragma unroll
  for (int j = 0; j < kKeys / kMmaCols; ++j) {
#pragma unroll
    for (int i = 0; i < kStripes; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) s[i][j][r] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < kDepthSteps; ++k) {
#pragma unroll
    for (int j = 0; j < kKeys / kMmaCols; j += 2) {
      unsigned b[4];
      load_matrices(b, shared_address(keys + Layout::at(j * kMmaCols + row, 2 * k + side)));
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
        mma(s[i][j], a[i][k], b[0], b[1]);
        mma(s[i][j + 1], a[i][k], b[2], b[3]);
      }
    }
  }
}

// Scores of keys past the end become −inf. Only called for the last tile.
template <int kStripes, int kKeys>
__device__ __forceinline__ void mask_scores(ScoreTile<kStripes, kKeys>& s, int keys_left) {
  const int first = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
#pragma unroll
    for (int j = 0; j < kKeys / kMmaCols; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) s[i][j][r] = mask_tail(s[i][j][r], j * kMmaCols + first + r % 2, keys_left);
    }
  }
}

// One stripe's softmax step: products times `scale` are the scores; they become weights in place, and the
// output is rescaled. The tile must have at least one key, so that the new maximum is finite.
template <int kTiles>
__device__ __forceinline__ void weigh(RowPair& state, float (&s)[kTiles][4], float (&o)[kOutCols][4], float scale) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Two chains each: with few warps per scheduler, latency is the limit.
    float even = s[0][2 * h], odd = s[0][2 * h + 1];
#pragma unroll
    for (int j = 1; j < kTiles; ++j) {
      even = fmaxf(even, s[j][2 * h]);
      odd = fmaxf(odd, s[j][2 * h + 1]);
    }
    const float raised = fmaxf(state.m[h], warp_max<4>(fmaxf(even, odd)) * scale);
    const float factor = fast_exp2(state.m[h] - raised);  // 0 at the first tile
    state.m[h] = raised;
    float sum_even = 0.0f, sum_odd = 0.0f;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      s[j][2 * h] = fast_exp2(fmaf(s[j][2 * h], scale, -raised));
      s[j][2 * h + 1] = fast_exp2(fmaf(s[j][2 * h + 1], scale, -raised));
      sum_even += s[j][2 * h];
      sum_odd += s[j][2 * h + 1];
    }
    state.l[h] = state.l[h] * factor + (sum_even + sum_odd);
#pragma unroll
    for (int j = 0; j < kOutCols; ++j) {
      o[j][2 * h] *= factor;
      o[j][2 * h + 1] *= factor;
    }
  }
}

// o += P · V. V is stored as [key][d] by rows: ldmatrix transposes it.
template <typename Layout, int kStripes, int kKeys>
__device__ __forceinline__ void multiply_values(OutputTile<kStripes>& o, const ScoreTile<kStripes, kKeys>& p,
                                                const half* values) {
  const int lane = threadIdx.x % kWarp;
  const int row = lane % 16;   // matrices 0, 2: keys 0 to 7; 1, 3: keys 8 to 15
  const int side = lane / 16;  // matrices 0, 1: d 0 to 7; 2, 3: d 8 to 15
#pragma unroll
  for (int k = 0; k < kKeys / kMmaDepth; ++k) {
    unsigned a[kStripes][4];
#pragma unroll
    for (int i = 0; i < kStripes; ++i) to_operand(a[i], p[i][2 * k], p[i][2 * k + 1]);
#pragma unroll
    for (int j = 0; j < kOutCols; j += 2) {
      unsigned b[4];
      load_matrices_transposed(b, shared_address(values + Layout::at(k * kMmaDepth + row, j + side)));
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
        mma(o[i][j], a[i], b[0], b[1]);
        mma(o[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

template <int kStripes>
__device__ __forceinline__ void clear(OutputTile<kStripes>& o) {
#pragma unroll
  for (int i = 0; i < kStripes; ++i) {
#pragma unroll
    for (int j = 0; j < kOutCols; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) o[i][j][r] = 0.0f;
    }
  }
}

// Normalizes one stripe and writes its first `valid` rows. The halves pass through 16 rows of `buffer`,
// which only this warp uses, so that a lane writes 16 bytes and eight lanes a whole row.
template <typename Layout>
__device__ __forceinline__ void store_output(half* target, const float (&o)[kOutCols][4], RowPair& state,
                                             half* buffer, int valid) {
  const int lane = threadIdx.x % kWarp;
  state.sum_lanes();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float f = state.l[h] > 0.0f ? __frcp_rn(state.l[h]) : 0.0f;
#pragma unroll
    for (int j = 0; j < kOutCols; ++j) {
      *reinterpret_cast<half2*>(buffer + Layout::at(lane / 4 + h * 8, j) + lane % 4 * 2) =
          __floats2half2_rn(o[j][2 * h] * f, o[j][2 * h + 1] * f);
    }
  }
  __syncwarp();  // the stripe is complete
#pragma unroll
  for (int n = 0; n < kMmaRows * kPiecesOfRow / kWarp; ++n) {
    const int i = lane + n * kWarp;
    const int row = i / kPiecesOfRow;
    const int piece = i % kPiecesOfRow;
    if (row < valid) {
      store_half8_global(target + row * kHeadDim + piece * kPiece, load_half8(buffer + Layout::at(row, piece)));
    }
  }
}

}  // namespace attention
