// Attention forward with mma.sync (sm_80 and newer): any arch, D = 64 and 128, causal or not, query heads that share
// K and V, fp16 or bf16.
//
// A warp has kStripes stripes of 16 query rows, and the block iterates over tiles of 64 keys; the next tile is copied
// (cp.async) while the current one is multiplied. Scores, weights and O stay in registers.
#pragma once

#include <attention/async_copy.cuh>
#include <attention/hopper/exp2.cuh>
#include <attention/hopper/registers.cuh>
#include <attention/strides.cuh>

#include <cuda_runtime.h>

namespace stripes {

using attention::place_of;
using attention::Strides;
using hopper::exp2_unit;
using hopper::kAllLanes;
using hopper::pack;

template <int kHeadDim_, int kWarps_, int kStripes_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kStripes = kStripes_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRowsOfWarp = kStripes * 16;
  static constexpr int kRows = kWarps * kRowsOfWarp;
  static constexpr int kKeys = 64;
  static constexpr int kStages = 2;
  static constexpr int kPieces = kHeadDim / 8;  // 16-byte pieces per row
  static constexpr int kTileBytes = kKeys * kHeadDim * 2;
  static constexpr int kKeysAt = kRows * kHeadDim * 2;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kSharedBytes = kValuesAt + kStages * kTileBytes;
  static_assert(kHeadDim == 64 || kHeadDim == 128, "head dimension: 64 or 128");
  static_assert(kSharedBytes <= 99 * 1024, "what a block may ask for on sm_89");
};

extern __shared__ __align__(128) unsigned char stripes_shared[];

// The position of piece `piece` in row `row`: XORed with the row, so that eight rows of a column touch each bank once.
template <typename C>
__device__ __forceinline__ uint32_t place(int row, int piece) {
  return (row * C::kPieces + (piece ^ (row % 8))) * 16;
}

// Loads rows [0, kCount) of `source`, `stride` elements apart, by all threads of the block; zeros from row `valid` on.
template <typename C, int kCount>
__device__ __forceinline__ void fetch(int at, const uint16_t* source, long long stride, int valid) {
#pragma unroll
  for (int n = 0; n < kCount * C::kPieces / C::kThreads; ++n) {
    const int i = threadIdx.x + n * C::kThreads;
    const int row = i / C::kPieces, piece = i % C::kPieces;
    const bool exists = row < valid;
    attention::copy16_async(reinterpret_cast<half*>(stripes_shared + at + place<C>(row, piece)),
                            reinterpret_cast<const half*>(source + (exists ? row * stride : 0) + piece * 8), exists);
  }
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
#if ELEMENT_BF16
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct Problem {
  Strides q, k, v, out;
  int queries, keys;
  int ahead;    // row r sees keys before r + ahead
  int sharing;  // query heads per K/V head
  float scale_log2e;
};

// Writes `out`, and with WRITE_LSE the natural logarithm of each row's sum of exponentials. Tensors are [B, heads, S,
// D], rows contiguous; blockIdx.z is the batch, blockIdx.y the head, blockIdx.x the block of rows, the last ones
// first.
template <typename C>
__device__ __forceinline__ void forward(const Problem& p, const uint16_t* q, const uint16_t* k, const uint16_t* v,
                                        uint16_t* out, float* lse) {
  const uint32_t memory = attention::shared_address(stripes_shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.y;
  const int first_row = (gridDim.x - 1 - blockIdx.x) * C::kRows;
  const int batch = blockIdx.z, kv_head = head / p.sharing;
  const int rows_here = min(C::kRows, p.queries - first_row);
  const int tiles = (min(p.keys, first_row + rows_here - 1 + p.ahead) + C::kKeys - 1) / C::kKeys;

  // phase: load
  const auto fetch_tile = [&](int n) {
    const int at = n % C::kStages * C::kTileBytes;
    const int first = n * C::kKeys;
    fetch<C, C::kKeys>(C::kKeysAt + at, place_of(k, p.k, batch, kv_head, first), p.k.row, p.keys - first);
    fetch<C, C::kKeys>(C::kValuesAt + at, place_of(v, p.v, batch, kv_head, first), p.v.row, p.keys - first);
  };
  fetch<C, C::kRows>(0, place_of(q, p.q, batch, head, first_row), p.q.row, rows_here);
  fetch_tile(0);
  attention::commit_copies();

  float o[C::kStripes][C::kHeadDim / 8][4];
  float m[C::kStripes][2], l[C::kStripes][2];
#pragma unroll
  for (int i = 0; i < C::kStripes; ++i) {
#pragma unroll
    for (int j = 0; j < C::kHeadDim / 8; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) o[i][j][r] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m[i][h] = -__builtin_huge_valf();
      l[i][h] = 0.0f;
    }
  }
  const int own_row = warp * C::kRowsOfWarp;  // in the block

#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    // phase: load
    if (n + 1 < tiles) fetch_tile(n + 1);
    attention::commit_copies();
    attention::wait_copies<1>();
    __syncthreads();  // this tile has landed, for all threads
    const uint32_t keys = memory + C::kKeysAt + n % C::kStages * C::kTileBytes;
    const uint32_t values = memory + C::kValuesAt + n % C::kStages * C::kTileBytes;

    // phase: scores
    float s[C::kStripes][C::kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < C::kHeadDim / 16; ++step) {
      uint32_t a[C::kStripes][4];
#pragma unroll
      for (int i = 0; i < C::kStripes; ++i) {
        load_matrices(a[i], memory + place<C>(own_row + i * 16 + lane % 16, step * 2 + lane / 16));
      }
#pragma unroll
      for (int j = 0; j < C::kKeys / 16; ++j) {
        uint32_t b[4];
        load_matrices(b, keys + place<C>(j * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < C::kStripes; ++i) {
          multiply(s[i][2 * j], a[i], b[0], b[1]);
          multiply(s[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }

    // phase: softmax
    const int first_key = n * C::kKeys;
    uint32_t w[C::kStripes][C::kKeys / 8][2];
#pragma unroll
    for (int i = 0; i < C::kStripes; ++i) {
      const int row = first_row + own_row + i * 16 + lane / 4;
      if (first_key + C::kKeys > min(p.keys, first_row + own_row + i * 16 + p.ahead)) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int seen = min(p.keys, row + 8 * h + p.ahead) - first_key - lane % 4 * 2;
#pragma unroll
          for (int j = 0; j < C::kKeys / 8; ++j) {
            if (j * 8 >= seen) s[i][j][2 * h] = -__builtin_huge_valf();
            if (j * 8 + 1 >= seen) s[i][j][2 * h + 1] = -__builtin_huge_valf();
          }
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = fmaxf(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
        for (int j = 1; j < C::kKeys / 8; ++j) top = fmaxf(top, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
        // Every row has seen the first key by now, so this is finite.
        const float raised = fmaxf(m[i][h], top * p.scale_log2e);
        const float factor = exp2_unit(m[i][h] - raised);
        m[i][h] = raised;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < C::kKeys / 8; ++j) {
          const float x = exp2_unit(fmaf(s[i][j][2 * h], p.scale_log2e, -raised));
          const float y = exp2_unit(fmaf(s[i][j][2 * h + 1], p.scale_log2e, -raised));
          sum += x + y;
          w[i][j][h] = pack(x, y);
        }
        l[i][h] = fmaf(l[i][h], factor, sum);
#pragma unroll
        for (int j = 0; j < C::kHeadDim / 8; ++j) {
          o[i][j][2 * h] *= factor;
          o[i][j][2 * h + 1] *= factor;
        }
      }
    }

    // phase: output
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step) {
#pragma unroll
      for (int j = 0; j < C::kHeadDim / 16; ++j) {
        uint32_t b[4];
        load_matrices_transposed(b, values + place<C>(step * 16 + lane % 16, j * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < C::kStripes; ++i) {
          const uint32_t a[4] = {w[i][2 * step][0], w[i][2 * step][1], w[i][2 * step + 1][0], w[i][2 * step + 1][1]};
          multiply(o[i][2 * j], a, b[0], b[1]);
          multiply(o[i][2 * j + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // all threads have read the tile
  }

  // phase: store
#pragma unroll
  for (int i = 0; i < C::kStripes; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + own_row + i * 16 + lane / 4 + 8 * h;
      l[i][h] += __shfl_xor_sync(kAllLanes, l[i][h], 1);
      l[i][h] += __shfl_xor_sync(kAllLanes, l[i][h], 2);
      const float inverse = 1.0f / l[i][h];
      if (WRITE_LSE && lane % 4 == 0 && row < p.queries) {
        lse[(static_cast<long long>(batch) * gridDim.y + head) * p.queries + row] = (m[i][h] + log2f(l[i][h])) * 0.693147180559945f;
      }
#pragma unroll
      for (int block = 0; block < C::kHeadDim / 8; block += 4) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          words[j] = pack(o[i][block + j][2 * h] * inverse, o[i][block + j][2 * h + 1] * inverse);
        }
        hopper::transpose_quad(words, lane);
        if (row < p.queries) {
          *reinterpret_cast<uint4*>(place_of(out, p.out, batch, head, row) + (block + lane % 4) * 8) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }
}

}  // namespace stripes
