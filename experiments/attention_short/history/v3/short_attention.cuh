// Attention forward for short and middle sequences on Hopper: both products on wgmma, K and V by bulk tensor
// copies, keys split over warpgroups and over a cluster, partial results merged through (distributed) shared
// memory. [heads, S, D] fp16, non-causal, any S >= 1, scale > 0.
//
// A block has kRowGroups x 64 queries, and kKeyGroups warpgroups for each 64 of them. A cluster is kKeyParts blocks
// that share the keys of the same queries.
//
//   - Chunk c of a block's keys (kChunk of them) belongs to key group c % kKeyGroups and lies in stage
//     c % kStages. kInline: as many stages as chunks, everything is asked for at once, by the warps that compute;
//     otherwise a warp (with kDeep a warpgroup, for the registers' sake) asks for a chunk when its stage is free.
//   - Weights are relative to the largest score of a warpgroup's *first* chunk; a later chunk raises that only
//     where it lies more than 2^8 above, so that rescaling is rare and off the usual path.
//   - kOverlap: while weights of a chunk are computed, the product of the chunk before with V runs.
//     kDeep: and the product of the next chunk with Q too.
//   - Merge inside the block: each key group finishes its own share of the accumulator's slots, and gets the
//     others' shares from the threads that hold the same slots: no address is computed from a row or column,
//     every access is 16 bytes a lane side by side, and a warp waits for its own partners alone. Then between
//     blocks, the same way: st.async tells the receiver's barrier itself. No block waits for another at its end:
//     a block's last act is to read what the others have sent.
#pragma once

#include "ptx.cuh"
#include "wgmma.cuh"

#ifndef STAMPS
#define STAMPS 0
#endif

namespace short_attention {

using namespace ptx;

constexpr float kMasked = -1e30f;  // finite: a difference of two is no NaN
constexpr float kSlack = 8.0f;     // powers of two that a score may lie above what weights are relative to
constexpr int kStamps = 16;        // of a warp

enum Flags {
  kQueriesInRegisters = 1,
  kOverlapFlag = 2,
  kPolynomial1 = 4,    // 1 of 8 exponentials on the FMA pipe
  kPolynomial2 = 8,    // 2 of 8; both: 3 of 8
  kInlineFlag = 16,
  kPingPongFlag = 32,  // two row groups take turns at the tensor cores
  kDeepFlag = 64,
  kHalfPartsFlag = 128,   // partial results travel between blocks as halves
  kWideStoresFlag = 256,  // the answer is stored 16 bytes a lane, after an exchange between lanes
  kRotateFlag = 512,      // query tiles of a head start at different chunks, so that they do not all ask for one
};

template <int kDim_, int kRowGroups_, int kKeyGroups_, int kChunk_, int kStages_, int kKeyParts_, int kFlags_>
struct Config {
  static constexpr int kDim = kDim_;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kKeyGroups = kKeyGroups_;
  static constexpr int kChunk = kChunk_;
  static constexpr int kStages = kStages_;
  static constexpr int kKeyParts = kKeyParts_;
  static constexpr bool kQueriesInRegisters = (kFlags_ & Flags::kQueriesInRegisters) != 0;
  static constexpr bool kOverlap = (kFlags_ & Flags::kOverlapFlag) != 0;
  static constexpr bool kPingPong = (kFlags_ & Flags::kPingPongFlag) != 0;
  static constexpr bool kDeep = (kFlags_ & Flags::kDeepFlag) != 0;
  static constexpr bool kInline = (kFlags_ & Flags::kInlineFlag) != 0;
  static constexpr bool kHalfParts = (kFlags_ & Flags::kHalfPartsFlag) != 0;
  static constexpr bool kWideStores = (kFlags_ & Flags::kWideStoresFlag) != 0;
  static constexpr bool kRotate = (kFlags_ & Flags::kRotateFlag) != 0;
  static constexpr int kPolynomial = (kFlags_ / Flags::kPolynomial1) % 4;

  static constexpr int kRows = kRowGroups * 64;
  static constexpr int kGroups = kRowGroups * kKeyGroups;
  static constexpr int kWarps = kGroups * 4;  // that compute
  static constexpr bool kGivesRegisters = kDeep && !kInline;
  static constexpr int kThreads = kGroups * 128 + (kInline ? 0 : kGivesRegisters ? 128 : 32);
  static constexpr int kPanels = kDim / 64;  // of 128 bytes a row
  static constexpr int kOutSlots = kDim / 2;
  static constexpr int kScoreSlots = kChunk / 2;

  // Merge: of kParts partial results each finishes kShare slots a thread.
  static constexpr int kParts = kKeyGroups * kKeyParts;
  static constexpr int kShare = kOutSlots / kParts;
  static constexpr int kGroupShare = kOutSlots / kKeyGroups;         // after the merge inside the block
  static constexpr int kLocalBytes = (kGroupShare * 4 + 16) * 128;   // from a key group to another: state, slots
  static constexpr int kRemoteSlotBytes = kShare * (kHalfParts ? 2 : 4);  // a thread
  static constexpr int kRemoteBytes = kRemoteSlotBytes * 128 + 4 * 8 * 8;  // from a block to another: slots, states
  static constexpr int kRemoteBytesOfWarp = kRemoteBytes / 4;

  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kChunkBytes = kChunk * kDim * 2;
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kChunkBytes;
  static constexpr int kLocalAt = kValuesAt + kStages * kChunkBytes;
  static constexpr int kRemoteAt = kLocalAt + kGroups * (kKeyGroups - 1) * kLocalBytes;
  static constexpr int kBarriersAt = kRemoteAt + kGroups * (kKeyParts - 1) * kRemoteBytes;
  static constexpr int kBarriers = 1 + 4 * kStages + 2 * kWarps;
  static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8;

  static_assert(kDim == 64 || kDim == 128, "head dimension");
  static_assert(!kPingPong || (kOverlap && kRowGroups == 2 && kKeyGroups == 1), "turns of two warpgroups in step");
  static_assert(!(kOverlap && kDeep), "one of the two");
  static_assert(!kGivesRegisters || kGroups == 2, "24 and 240 registers");
  static_assert(kKeyParts == 1 || kShare % (kHalfParts ? 8 : 4) == 0, "a share is whole vectors");
  static_assert(kKeyGroups == 1 || kGroupShare % 4 == 0, "a share is whole vectors");
  static_assert(!kWideStores || kShare % 8 == 0, "a row's share is whole vectors");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory");
};

// Which slot of the accumulator is number k of partial result p's share: rows g or g + 8 by p % 2, columns by p / 2.
template <typename C>
__device__ __forceinline__ constexpr int slot_of(int p, int k) {
  if (C::kParts == 1) return k;
  const int j = p / 2 * (C::kShare / 2) + k / 2;  // group of 8 columns
  return j * 4 + p % 2 * 2 + k % 2;
}

struct Stopwatch {
#if STAMPS
  unsigned at[kStamps] = {};
  unsigned long long begin;
#endif
  __device__ __forceinline__ void start() {
#if STAMPS
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
    stamp(0);
#endif
  }
  __device__ __forceinline__ void stamp(int i) {
#if STAMPS
    asm volatile("mov.u32 %0, %%clock;" : "=r"(at[i])::"memory");
#endif
  }
  __device__ __forceinline__ void write(unsigned long long* out, int warps, int warp) {
#if STAMPS
    if (out == nullptr) return;
    unsigned long long end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end)::"memory");
    if (threadIdx.x % 32 == 0) {
      unsigned long long* mine = out + (static_cast<unsigned long long>(blockIdx.y * gridDim.x + blockIdx.x) * warps + warp) * (kStamps + 2);
      mine[0] = begin;
      mine[1] = end;
      for (int i = 0; i < kStamps; ++i) mine[2 + i] = at[i] != 0 ? at[i] - at[0] : 0;
    }
#endif
  }
};

// Of four lanes side by side, lane t gets word t of each: four words of a row's columns become 16 bytes in a row.
__device__ __forceinline__ void exchange_quad(unsigned (&w)[4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(0xffffffffu, t & 1 ? w[i] : w[i + 1], 1);
    (t & 1 ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(0xffffffffu, t & 2 ? w[i] : w[i + 2], 2);
    (t & 2 ? w[i] : w[i + 2]) = got;
  }
}

// One row's columns 0, 1, 8, 9, 16, 17, ... (of this lane) of x times f. `to`: the row's first column.
template <bool kWide, int kCount>
__device__ __forceinline__ void store_row(half* to, const float (&x)[kCount], float f, bool exists) {
  const int t = threadIdx.x % 4;
  if constexpr (kWide) {
#pragma unroll
    for (int k = 0; k < kCount; k += 8) {
      unsigned w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = pack_halves(x[k + 2 * i] * f, x[k + 2 * i + 1] * f);
      exchange_quad(w);
      if (exists) *reinterpret_cast<uint4*>(to + (k / 2 + t) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  } else if (exists) {
#pragma unroll
    for (int k = 0; k < kCount; k += 2) {
      *reinterpret_cast<unsigned*>(to + k / 2 * 8 + t * 2) = pack_halves(x[k] * f, x[k + 1] * f);
    }
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    forward(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
            const __grid_constant__ CUtensorMap v_map, half* __restrict__ out, int seq, float scale,
            unsigned long long* __restrict__ stamps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Stopwatch watch;
  watch.start();

  const std::uint32_t base = shared_address(memory);
  const std::uint32_t queries = base + C::kQueriesAt;
  const std::uint32_t keys = base + C::kKeysAt;
  const std::uint32_t values = base + C::kValuesAt;
  const std::uint32_t queries_here = base + C::kBarriersAt;
  const std::uint32_t keys_here = queries_here + 8;  // [stage]
  const std::uint32_t values_here = keys_here + 8 * C::kStages;
  const std::uint32_t keys_free = values_here + 8 * C::kStages;
  const std::uint32_t values_free = keys_free + 8 * C::kStages;
  const std::uint32_t local_full = values_free + 8 * C::kStages;  // [warp]
  const std::uint32_t remote_full = local_full + 8 * C::kWarps;   // [warp]

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int part = C::kKeyParts > 1 ? cluster_rank() : 0;
  const int tile = blockIdx.x / C::kKeyParts;
  const int head = blockIdx.y;

  const int all_chunks = (seq + C::kChunk - 1) / C::kChunk;
  const int part_chunks = (all_chunks + C::kKeyParts - 1) / C::kKeyParts;
  const int first_chunk = part * part_chunks;
  const int chunks = max(0, min(part_chunks, all_chunks - first_chunk));

  // The first key of the block's chunk number c, in the order in which they are taken.
  const int shift = C::kRotate && chunks > 0 ? tile % chunks : 0;
  const auto first_key = [&](int c) {
    if (C::kRotate) c = c + shift < chunks ? c + shift : c + shift - chunks;
    return (first_chunk + c) * C::kChunk;
  };

  // Asks for the queries; for chunk c. By one thread.
  const auto fetch_queries = [&] {
    if (chunks == 0) return;
    arrive_expecting(queries_here, C::kQueryBytes);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_tile(queries + i * C::kRows * 128, q_map, i * 64, tile * C::kRows, head, queries_here);
    }
  };
  const auto fetch = [&](std::uint32_t ring, const CUtensorMap& map, int c, std::uint32_t here) {
    if (c >= chunks) return;
    const int stage = c % C::kStages;
    const std::uint32_t bar = here + 8 * stage;
    arrive_expecting(bar, C::kChunkBytes);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_tile(ring + stage * C::kChunkBytes + i * C::kChunk * 128, map, i * 64, first_key(c), head, bar);
    }
  };
  const auto init_stage = [&](int i) {
    init_barrier(keys_here + 8 * i, 1);
    init_barrier(values_here + 8 * i, 1);
    if (C::kInline) return;
    init_barrier(keys_free + 8 * i, 4 * C::kRowGroups);
    init_barrier(values_free + 8 * i, 4 * C::kRowGroups);
  };

  if constexpr (!C::kInline) {
    if (warp >= C::kWarps) {
      // ---- the warp that asks for tiles, and those that are there to give their registers away
      if (warp == C::kWarps && lane == 0) {
        init_barrier(queries_here, 1);
#pragma unroll
        for (int i = 0; i < C::kStages; ++i) init_stage(i);
        publish_barriers();
        watch.stamp(1);
        await_predecessor();
        fetch_queries();
#pragma unroll
        for (int c = 0; c < C::kKeyGroups; ++c) fetch(keys, k_map, c, keys_here);
        release_successor();
      }
      watch.stamp(2);
      __syncwarp();
      if (C::kKeyParts > 1) cluster_arrive_relaxed();
      __syncthreads();
      if constexpr (C::kGivesRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (warp == C::kWarps && lane == 0) {
        const auto refill = [&](std::uint32_t ring, const CUtensorMap& map, int c, std::uint32_t here, std::uint32_t free) {
          if (c >= C::kStages && c < chunks) wait(free + 8 * (c % C::kStages), (c / C::kStages - 1) & 1);
          fetch(ring, map, c, here);
        };
        // A group's keys come one chunk ahead of its values.
#pragma unroll 1
        for (int c = C::kKeyGroups; c < chunks + C::kKeyGroups; ++c) {
          refill(keys, k_map, c, keys_here, keys_free);
          refill(values, v_map, c - C::kKeyGroups, values_here, values_free);
        }
      }
      watch.stamp(3);
      __syncwarp();
      watch.write(stamps, C::kThreads / 32, warp);
      return;
    }
  } else if (lane == 0) {
    // ---- several warps ask for tiles: the queries, a chunk of keys each
    constexpr int kAhead = C::kStages < C::kKeyGroups + 1 ? C::kStages : C::kKeyGroups + 1;
    bool any = false;
    if (warp == 0) {
      init_barrier(queries_here, 1);
      any = true;
    }
#pragma unroll
    for (int c = 0; c < C::kStages; ++c) {
      if (warp == (c + 1) % C::kWarps) {
        init_stage(c);
        any = true;
      }
    }
    if (any) {
      publish_barriers();
      await_predecessor();
    }
    if (warp == 0) fetch_queries();
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      if (warp == (c + 1) % C::kWarps) fetch(keys, k_map, c, keys_here);
    }
    release_successor();
    if (warp == C::kWarps - 1) prefetch_map(v_map);
  }
  watch.stamp(11);

  // ---- the warps that compute
  if (lane == 0) {
    if (C::kKeyGroups > 1) init_barrier(local_full + 8 * warp, C::kKeyGroups - 1);
    if (C::kKeyParts > 1) {
      init_barrier(remote_full + 8 * warp, 1);
      publish_barriers();
      arrive_expecting(remote_full + 8 * warp, (C::kKeyParts - 1) * C::kRemoteBytesOfWarp);
    }
  }
  // That barriers are initialised is published by a fence of its own: nothing else is to be released here, and
  // an arrival that releases would wait for all memory traffic.
  __syncwarp();
  if (C::kKeyParts > 1) cluster_arrive_relaxed();
  __syncthreads();
  watch.stamp(1);
  if constexpr (C::kGivesRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");

  if constexpr (C::kInline) {
    constexpr int kAhead = C::kStages < C::kKeyGroups + 1 ? C::kStages : C::kKeyGroups + 1;
    if (warp == C::kWarps - 1 && lane == 0) {
#pragma unroll
      for (int c = 0; c < C::kStages; ++c) {
        fetch(values, v_map, c, values_here);
        if (c + kAhead < C::kStages) fetch(keys, k_map, c + kAhead, keys_here);
      }
    }
    __syncwarp();
  }

  const int group = warp / 4;
  const int key_group = group / C::kRowGroups;
  const int row_group = group % C::kRowGroups;
  const int mine = chunks > key_group ? (chunks - key_group + C::kKeyGroups - 1) / C::kKeyGroups : 0;

  float o[C::kOutSlots];
  float m[2] = {kMasked, kMasked}, l[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < C::kOutSlots; ++i) o[i] = 0.0f;

  if (mine > 0) {
    const std::uint32_t my_queries = queries + row_group * 64 * 128;
    const std::uint64_t on_queries = descriptor(my_queries, 16);
    const std::uint64_t on_keys = descriptor(keys, 16);
    const std::uint64_t on_values = descriptor(values, C::kChunk * 128);
    unsigned a[C::kQueriesInRegisters ? C::kDim / 16 : 1][4];

    wait(queries_here, 0);
    watch.stamp(2);
    if constexpr (C::kQueriesInRegisters) {
      const int row = warp % 4 * 16 + lane % 16;
#pragma unroll
      for (int k = 0; k < C::kDim / 16; ++k) {
        const int piece = k % 4 * 2 + lane / 16;
        load_matrices(a[k], my_queries + k / 4 * C::kRows * 128 + row * 128 + ((piece ^ (row % 8)) * 16));
      }
    }

    const auto chunk_of = [&](int i) { return key_group + i * C::kKeyGroups; };
    // Starts s = Q * K^T of this group's chunk i.
    const auto multiply_keys = [&](float (&s)[C::kScoreSlots], int i) {
      const int c = chunk_of(i);
      const int stage = c % C::kStages;
      wait(keys_here + 8 * stage, (c / C::kStages) & 1);
      products_fence();
#pragma unroll
      for (int k = 0; k < C::kDim / 16; ++k) {
        const std::uint64_t b = on_keys + (stage * C::kChunkBytes + k / 4 * C::kChunk * 128 + k % 4 * 32) / 16;
        if constexpr (C::kQueriesInRegisters) {
          Wgmma<C::kChunk>::template rs<false>(s, a[k], b, k > 0);
        } else {
          Wgmma<C::kChunk>::template ss<false>(s, on_queries + (k / 4 * C::kRows * 128 + k % 4 * 32) / 16, b, k > 0);
        }
      }
    };
    // All have read what chunk c lies in, and it will be filled again: tell who asks for tiles.
    const auto release = [&](std::uint32_t free, int c) {
      if (!C::kInline && c + C::kStages < chunks && lane == 0) arrive(free + 8 * (c % C::kStages));
    };
    const auto row_max = [&](const float (&s)[C::kScoreSlots], int h) {
      float even = s[2 * h], odd = s[2 * h + 1];
#pragma unroll
      for (int j = 1; j < C::kChunk / 8; ++j) {
        even = fmaxf(even, s[4 * j + 2 * h]);
        odd = fmaxf(odd, s[4 * j + 2 * h + 1]);
      }
      return fmaxf(even, odd) * scale;
    };
    const auto over_lanes = [&](float x) {
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
    };

    // Scores of chunk i become weights in p, once the product that reads p has ended; o is rescaled if
    // need be.
    unsigned p[C::kChunk / 16][4];
    const auto weigh = [&](float (&s)[C::kScoreSlots], int i, auto&& product_ended) {
      const int left = seq - first_key(chunk_of(i));
      if (__builtin_expect(left < C::kChunk, 0)) {
#pragma unroll
        for (int e = 0; e < C::kScoreSlots; ++e) {
          if (e / 4 * 8 + lane % 4 * 2 + e % 2 >= left) s[e] = kMasked;
        }
      }
      float top[2] = {row_max(s, 0), row_max(s, 1)};
      float factor[2] = {1.0f, 1.0f};
      bool raised = false;
      if (i == 0) {
        m[0] = over_lanes(top[0]);
        m[1] = over_lanes(top[1]);
      } else {
        raised = __any_sync(0xffffffffu, top[0] > m[0] + kSlack || top[1] > m[1] + kSlack);
        if (__builtin_expect(raised, 0)) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float now = fmaxf(m[h], over_lanes(top[h]));
            factor[h] = exp2_unit(m[h] - now);
            m[h] = now;
            l[h] *= factor[h];
          }
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < C::kChunk / 8; ++j) {
#pragma unroll
          for (int x = 0; x < 2; ++x) {
            float& w = s[4 * j + 2 * h + x];
            const float e = fmaf(w, scale, -m[h]);
            const bool polynomial = (4 * (j % 2) + 2 * h + x) % 8 < 2 * C::kPolynomial && (j % 4 < 2 || C::kPolynomial > 1) && x == 0;
            w = polynomial ? exp2_polynomial(e) : exp2_unit(e);
            sum[x] += w;
          }
        }
        l[h] += sum[0] + sum[1];
      }
      product_ended();
      if (__builtin_expect(raised, 0)) {
#pragma unroll
        for (int e = 0; e < C::kOutSlots; ++e) o[e] *= factor[e / 2 % 2];
      }
#pragma unroll
      for (int k = 0; k < C::kChunk / 16; ++k) {
#pragma unroll
        for (int x = 0; x < 4; ++x) p[k][x] = pack_halves(s[8 * k + 2 * x], s[8 * k + 2 * x + 1]);
      }
    };
    // Starts o += P * V of chunk i.
    const auto multiply_values = [&](int i) {
      const int c = chunk_of(i);
      const int stage = c % C::kStages;
      wait(values_here + 8 * stage, (c / C::kStages) & 1);
      products_fence();
#pragma unroll
      for (int k = 0; k < C::kChunk / 16; ++k) {
        Wgmma<C::kDim>::template rs<true>(o, p[k], on_values + (stage * C::kChunkBytes + k * 2048) / 16, true);
      }
      products_commit();
    };

    float s[C::kScoreSlots];
    if constexpr (C::kOverlap) {
      multiply_keys(s, 0);
      products_commit();
      watch.stamp(3);
      products_wait<0>();
      watch.stamp(4);
      release(keys_free, chunk_of(0));
      weigh(s, 0, [] {});
      watch.stamp(5);
#pragma unroll 1
      for (int i = 1; i < mine; ++i) {
        if constexpr (C::kPingPong) {
          // Warpgroup 0 goes first: its turn is told to it for the first time before the loop.
          if (i == 1 && group == 1) turn_arrive(1);
          turn_wait(1 + group);
        }
        multiply_keys(s, i);
        products_commit();
        if (i == 1) watch.stamp(12);
        multiply_values(i - 1);
        if (i == 1) watch.stamp(13);
        if constexpr (C::kPingPong) {
          if (group == 0 || i + 1 < mine) turn_arrive(2 - group);
        }
        products_wait<1>();
        release(keys_free, chunk_of(i));
        weigh(s, i, [&] {
          if (i == 1) watch.stamp(14);
          products_wait<0>();
          release(values_free, chunk_of(i - 1));
        });
      }
      multiply_values(mine - 1);
      watch.stamp(15);
      products_wait<0>();
    } else if constexpr (C::kDeep) {
      float t[C::kScoreSlots];
      // Scores of chunk i are in `now`, and nothing is under way. The last turn multiplies its own keys once more:
      // without a condition around a product the compiler keeps them all asynchronous.
      const auto step = [&](float (&now)[C::kScoreSlots], float (&next)[C::kScoreSlots], int i) {
        multiply_keys(next, min(i + 1, mine - 1));
        products_commit();
        multiply_values(i - 1);
        weigh(now, i, [&] {
          products_wait<0>();
          if (i + 1 < mine) release(keys_free, chunk_of(i + 1));
          release(values_free, chunk_of(i - 1));
        });
      };
      multiply_keys(s, 0);
      products_commit();
      watch.stamp(3);
      products_wait<0>();
      watch.stamp(4);
      release(keys_free, chunk_of(0));
      multiply_keys(t, min(1, mine - 1));
      products_commit();
      weigh(s, 0, [&] {
        products_wait<0>();
        if (mine > 1) release(keys_free, chunk_of(1));
      });
      watch.stamp(5);
#pragma unroll 1
      for (int i = 1; i < mine;) {
        step(t, s, i);
        if (++i >= mine) break;
        step(s, t, i);
        ++i;
      }
      multiply_values(mine - 1);
      products_wait<0>();
    } else {
#pragma unroll 1
      for (int i = 0; i < mine; ++i) {
        multiply_keys(s, i);
        products_commit();
        if (i == 0) watch.stamp(3);
        products_wait<0>();
        if (i == 0) watch.stamp(4);
        release(keys_free, chunk_of(i));
        weigh(s, i, [] {});
        if (i == 0) watch.stamp(5);
        multiply_values(i);
        products_wait<0>();
        release(values_free, chunk_of(i));
      }
    }
  }
  watch.stamp(6);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 1);
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 2);
  }

  const int row = tile * C::kRows + row_group * 64 + warp % 4 * 16 + lane / 4;  // and 8 further on
  half* target = out + (static_cast<std::size_t>(head) * seq + row) * C::kDim;
  if constexpr (C::kParts == 1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x[C::kOutSlots / 2];
#pragma unroll
      for (int k = 0; k < C::kOutSlots / 2; ++k) x[k] = o[k / 2 * 4 + 2 * h + k % 2];
      store_row<C::kWideStores>(target + 8 * h * C::kDim, x, reciprocal(l[h]), row + 8 * h < seq);
    }
  } else {
    // Share p = key_group + kKeyGroups * part.
    const int thread = threadIdx.x % 128;
    const int self = key_group + C::kKeyGroups * part;
    const int half_of_rows = self % 2;

    // ---- inside the block
    float own[C::kGroupShare];  // slots that this key group finishes: [part][number]
    float top[2] = {m[0], m[1]}, sum[2] = {l[0], l[1]};  // with several key groups of one half of the rows alone
    if constexpr (C::kKeyGroups == 1) {
#pragma unroll
      for (int k = 0; k < C::kGroupShare; ++k) own[k] = o[slot_of<C>(k / C::kShare, k % C::kShare)];
    } else {
#pragma unroll
      for (int g = 0; g < C::kKeyGroups; ++g) {
        if (g == key_group) continue;
        const int to_warp = (g * C::kRowGroups + row_group) * 4 + warp % 4;
        const int place = (key_group - g - 1 + C::kKeyGroups) % C::kKeyGroups;
        const std::uint32_t to = base + C::kLocalAt + ((to_warp / 4) * (C::kKeyGroups - 1) + place) * C::kLocalBytes + thread * 16;
        store_shared(to, make_float4(m[g % 2], l[g % 2], 0.0f, 0.0f));
#pragma unroll
        for (int k = 0; k < C::kGroupShare; k += 4) {
          const int r = k / C::kShare, i = k % C::kShare, share = g + C::kKeyGroups * r;
          store_shared(to + (1 + k / 4) * 128 * 16,
                       make_float4(o[slot_of<C>(share, i)], o[slot_of<C>(share, i + 1)], o[slot_of<C>(share, i + 2)],
                                   o[slot_of<C>(share, i + 3)]));
        }
        __syncwarp();
        if (lane == 0) arrive(local_full + 8 * to_warp);
      }
      // Its slots differ from group to group: chosen, not indexed.
#pragma unroll
      for (int k = 0; k < C::kGroupShare; ++k) {
        const int r = k / C::kShare, i = k % C::kShare;
        own[k] = o[slot_of<C>(C::kKeyGroups * r, i)];
#pragma unroll
        for (int g = 1; g < C::kKeyGroups; ++g) own[k] = key_group == g ? o[slot_of<C>(g + C::kKeyGroups * r, i)] : own[k];
      }
      const float my_m = half_of_rows == 0 ? m[0] : m[1];
      const float my_l = half_of_rows == 0 ? l[0] : l[1];
      const std::uint32_t from = base + C::kLocalAt + group * (C::kKeyGroups - 1) * C::kLocalBytes + thread * 16;
      wait(local_full + 8 * warp, 0);
      float4 state[C::kKeyGroups - 1];
      float high = my_m;
#pragma unroll
      for (int i = 0; i < C::kKeyGroups - 1; ++i) {
        state[i] = load_shared(from + i * C::kLocalBytes);
        high = fmaxf(high, state[i].x);
      }
      const float f = exp2_unit(my_m - high);
      float total = my_l * f;
#pragma unroll
      for (int k = 0; k < C::kGroupShare; ++k) own[k] *= f;
#pragma unroll
      for (int i = 0; i < C::kKeyGroups - 1; ++i) {
        const float g = exp2_unit(state[i].x - high);
        total = fmaf(state[i].y, g, total);
#pragma unroll
        for (int k = 0; k < C::kGroupShare; k += 4) {
          const float4 x = load_shared(from + i * C::kLocalBytes + (1 + k / 4) * 128 * 16);
          own[k] = fmaf(x.x, g, own[k]);
          own[k + 1] = fmaf(x.y, g, own[k + 1]);
          own[k + 2] = fmaf(x.z, g, own[k + 2]);
          own[k + 3] = fmaf(x.w, g, own[k + 3]);
        }
      }
      top[0] = top[1] = high;
      sum[0] = sum[1] = total;
    }

    // ---- between blocks
    float last[C::kShare];
    float f;  // what the slots are multiplied by at last
    if constexpr (C::kKeyParts == 1) {
#pragma unroll
      for (int k = 0; k < C::kShare; ++k) last[k] = own[k];
      f = reciprocal(sum[0]);
    } else {
      cluster_wait();  // the partners' barriers are initialised
      watch.stamp(7);
      const std::uint32_t inbox = base + C::kRemoteAt + group * (C::kKeyParts - 1) * C::kRemoteBytes;
#pragma unroll
      for (int r = 0; r < C::kKeyParts; ++r) {
        if (r == part) continue;
        const int h = C::kKeyGroups == 1 ? r % 2 : 0;
        const int place = (part - r - 1 + C::kKeyParts) % C::kKeyParts;
        const std::uint32_t to = map_to_rank(inbox + place * C::kRemoteBytes, r);
        const std::uint32_t bar = map_to_rank(remote_full + 8 * warp, r);
        if (lane % 4 == 0) {
          store_remote(to + C::kRemoteSlotBytes * 128 + (thread / 4) * 8, make_float2(top[h], sum[h]), bar);
        }
        if constexpr (C::kHalfParts) {
          const float inverse = sum[h] > 0.0f ? reciprocal(sum[h]) : 0.0f;
#pragma unroll
          for (int k = 0; k < C::kShare; k += 8) {
            const float* x = own + r * C::kShare + k;
            const auto word = [&](int i) { return __uint_as_float(pack_halves(x[i] * inverse, x[i + 1] * inverse)); };
            store_remote(to + (k / 8) * 128 * 16 + thread * 16, make_float4(word(0), word(2), word(4), word(6)), bar);
          }
        } else {
#pragma unroll
          for (int k = 0; k < C::kShare; k += 4) {
            const float* x = own + r * C::kShare + k;
            store_remote(to + (k / 4) * 128 * 16 + thread * 16, make_float4(x[0], x[1], x[2], x[3]), bar);
          }
        }
      }
      const float my_m = C::kKeyGroups == 1 && half_of_rows == 1 ? top[1] : top[0];
      const float my_l = C::kKeyGroups == 1 && half_of_rows == 1 ? sum[1] : sum[0];
#pragma unroll
      for (int k = 0; k < C::kShare; ++k) {
        last[k] = own[k];
#pragma unroll
        for (int r = 1; r < C::kKeyParts; ++r) last[k] = part == r ? own[r * C::kShare + k] : last[k];
      }
      watch.stamp(8);
      wait_cluster(remote_full + 8 * warp, 0);
      watch.stamp(9);
      float2 state[C::kKeyParts - 1];
      float high = my_m;
#pragma unroll
      for (int i = 0; i < C::kKeyParts - 1; ++i) {
        state[i] = load_shared2(inbox + i * C::kRemoteBytes + C::kRemoteSlotBytes * 128 + (thread / 4) * 8);
        high = fmaxf(high, state[i].x);
      }
      const float e = exp2_unit(my_m - high);
      float total = my_l * e;
#pragma unroll
      for (int k = 0; k < C::kShare; ++k) last[k] *= e;
#pragma unroll
      for (int i = 0; i < C::kKeyParts - 1; ++i) {
        float g = exp2_unit(state[i].x - high);
        total = fmaf(state[i].y, g, total);
        const std::uint32_t from = inbox + i * C::kRemoteBytes + thread * 16;
        if constexpr (C::kHalfParts) {
          g *= state[i].y;  // halves come divided by their sum
#pragma unroll
          for (int k = 0; k < C::kShare; k += 8) {
            const float4 x = load_shared(from + (k / 8) * 128 * 16);
            const float words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const unsigned word = __float_as_uint(words[j]);
              const float2 two = __half22float2(*reinterpret_cast<const half2*>(&word));
              last[k + 2 * j] = fmaf(two.x, g, last[k + 2 * j]);
              last[k + 2 * j + 1] = fmaf(two.y, g, last[k + 2 * j + 1]);
            }
          }
        } else {
#pragma unroll
          for (int k = 0; k < C::kShare; k += 4) {
            const float4 x = load_shared(from + (k / 4) * 128 * 16);
            last[k] = fmaf(x.x, g, last[k]);
            last[k + 1] = fmaf(x.y, g, last[k + 1]);
            last[k + 2] = fmaf(x.z, g, last[k + 2]);
            last[k + 3] = fmaf(x.w, g, last[k + 3]);
          }
        }
      }
      f = reciprocal(total);
    }
    store_row<C::kWideStores>(target + 8 * half_of_rows * C::kDim + self / 2 * (C::kShare / 2) * 8, last, f,
                              row + 8 * half_of_rows < seq);
  }
  watch.stamp(10);
  watch.write(stamps, C::kThreads / 32, warp);
}

}  // namespace short_attention
