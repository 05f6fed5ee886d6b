// Attention forward for short and middle sequences on Hopper: both products on wgmma, K and V by bulk tensor
// copies, keys split over warpgroups and over a cluster, partial results merged through (distributed) shared
// memory. [heads, S, D] fp16, non-causal, any S >= 1, scale > 0.
//
// A block has kRowGroups x 64 queries and kKeyGroups warpgroups for each 64 of them. A cluster is
// kKeyParts x kQueryTiles blocks: kKeyParts share the keys of a query tile, kQueryTiles tiles share the copies
// of K and V (multicast). One extra warp asks for the tiles.
//
//   - Chunk c of a block's keys (kChunk of them) belongs to key group c % kKeyGroups and lies in stage
//     c % kStages. With enough stages everything is asked for at once and nothing is ever waited for twice.
//   - Weights are relative to the largest score of a warpgroup's *first* chunk; a later chunk raises that only
//     where it lies more than 2^8 above, so that rescaling is rare and off the usual path.
//   - kOverlap: the next chunk's scores are multiplied while this chunk's weights are computed.
//   - Merge: each of the kKeyGroups * kKeyParts partial results finishes its own share of the accumulator's
//     slots, and gets the others' shares from the threads that hold the same slots: no address is ever
//     computed from a row or column, every access is 16 bytes a lane side by side, and a warp waits for its
//     own partners alone. To another block by st.async, which tells the receiver's barrier itself. No block
//     waits for another at its end: a block's last act is to read what the others have sent.
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
constexpr int kStamps = 12;        // of a warp

enum Flags {
  kQueriesInRegisters = 1,
  kOverlapFlag = 2,
  kPolynomial1 = 4,  // 1 of 8 exponentials on the FMA pipe
  kPolynomial2 = 8,  // 2 of 8
  kInlineFlag = 16,  // no warp of its own asks for tiles: warp 0 does, all at once
  kPingPongFlag = 32,  // two row groups take turns at the tensor cores
  kHalvesFlag = 64,    // a group has one chunk: its scores come in two halves, each with its weights and product
};

template <int kDim_, int kRowGroups_, int kKeyGroups_, int kChunk_, int kStages_, int kKeyParts_, int kQueryTiles_,
          int kFlags_>
struct Config {
  static constexpr int kDim = kDim_;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kKeyGroups = kKeyGroups_;
  static constexpr int kChunk = kChunk_;
  static constexpr int kStages = kStages_;
  static constexpr int kKeyParts = kKeyParts_;
  static constexpr int kQueryTiles = kQueryTiles_;
  static constexpr bool kQueriesInRegisters = (kFlags_ & Flags::kQueriesInRegisters) != 0;
  static constexpr bool kOverlap = (kFlags_ & Flags::kOverlapFlag) != 0;
  static constexpr bool kPingPong = (kFlags_ & Flags::kPingPongFlag) != 0;
  static constexpr bool kHalves = (kFlags_ & Flags::kHalvesFlag) != 0;
  static constexpr int kPolynomial = (kFlags_ / Flags::kPolynomial1) % 4;

  static constexpr int kCluster = kKeyParts * kQueryTiles;
  static constexpr int kRows = kRowGroups * 64;
  static constexpr int kGroups = kRowGroups * kKeyGroups;
  static constexpr bool kInline = (kFlags_ & Flags::kInlineFlag) != 0;
  static constexpr int kAsker = kInline ? 0 : kGroups * 4;  // the warp that asks for tiles
  static constexpr int kThreads = kGroups * 128 + (kInline ? 0 : 32);
  static constexpr int kPanels = kDim / 64;  // of 128 bytes a row
  static constexpr int kOutSlots = kDim / 2;
  static constexpr int kScoreSlots = kChunk / 2;

  // Merge: each of kParts partial results finishes kShare slots a thread.
  static constexpr int kParts = kKeyGroups * kKeyParts;
  static constexpr int kShare = kOutSlots / kParts;
  static constexpr int kShareBytes = kShare * 4 + 16;              // a thread: slots, m and l
  static constexpr int kInboxBytes = (kParts - 1) * kShareBytes * 128;  // a warpgroup

  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kChunkBytes = kChunk * kDim * 2;
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kChunkBytes;
  static constexpr int kInboxAt = kValuesAt + kStages * kChunkBytes;
  static constexpr int kBarriersAt = kInboxAt + kGroups * kInboxBytes;
  static constexpr int kBarriers = 1 + 4 * kStages + 4 * kGroups;
  static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8;

  static_assert(kDim == 64 || kDim == 128, "head dimension");
  static_assert(!kPingPong || (kOverlap && kRowGroups == 2 && kKeyGroups == 1), "turns of two warpgroups in step");
  static_assert(!kHalves || (!kOverlap && kStages == kKeyGroups), "one chunk a warpgroup");
  static_assert(kShare % 4 == 0, "a share is whole vectors");
  static_assert(kChunk % (8 * kQueryTiles) == 0, "each block of a multicast brings whole swizzle groups");
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
      for (int i = 0; i < kStamps; ++i) mine[2 + i] = at[i] - at[0];
    }
#endif
  }
};

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
  const std::uint32_t inbox_full = values_free + 8 * C::kStages;  // [warpgroup][warp]

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const unsigned rank = C::kCluster > 1 ? cluster_rank() : 0;
  const int part = rank % C::kKeyParts;
  const int member = rank / C::kKeyParts;  // of those that share K and V
  const int tile = blockIdx.x / C::kCluster * C::kQueryTiles + member;
  const int head = blockIdx.y;

  const int all_chunks = (seq + C::kChunk - 1) / C::kChunk;
  const int part_chunks = (all_chunks + C::kKeyParts - 1) / C::kKeyParts;
  const int first_chunk = part * part_chunks;
  const int chunks = max(0, min(part_chunks, all_chunks - first_chunk));

  // Asks for chunk c, once its stage is free. By one thread.
  constexpr int kMine = C::kChunk / C::kQueryTiles;  // rows of a chunk that this block brings
  constexpr std::uint16_t kFirst = [] {
    std::uint16_t mask = 0;
    for (int i = 0; i < C::kQueryTiles; ++i) mask |= static_cast<std::uint16_t>(1 << (i * C::kKeyParts));
    return mask;
  }();
  const auto fetch = [&](std::uint32_t ring, const CUtensorMap& map, int c, std::uint32_t here, std::uint32_t free) {
    const int stage = c % C::kStages;
    const std::uint32_t bar = here + 8 * stage;
    if (!C::kInline && c >= C::kStages) wait_cluster(free + 8 * stage, (c / C::kStages - 1) & 1);
    arrive_expecting(bar, C::kChunkBytes);
    const int row = (first_chunk + c) * C::kChunk + member * kMine;
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      const std::uint32_t to = ring + stage * C::kChunkBytes + i * C::kChunk * 128 + member * kMine * 128;
      if constexpr (C::kQueryTiles > 1) {
        copy_tile_to(to, map, i * 64, row, head, bar, static_cast<std::uint16_t>(kFirst << part));
      } else {
        copy_tile(to, map, i * 64, row, head, bar);
      }
    }
  };

  if (warp == C::kAsker) {
    // ---- the warp that asks for tiles
    const auto fetch_first_keys = [&] {
#pragma unroll
      for (int c = 0; c < C::kKeyGroups; ++c) {
        if (c < chunks) fetch(keys, k_map, c, keys_here, keys_free);
      }
    };
    const auto init_inboxes = [&] {
      constexpr int kRemote = (C::kKeyParts - 1) * C::kKeyGroups;  // partners in other blocks
      constexpr int kLocal = C::kKeyGroups - 1;
#pragma unroll
      for (int i = 0; i < (C::kParts > 1 ? 4 * C::kGroups : 0); ++i) {
        init_barrier(inbox_full + 8 * i, kLocal + (kRemote > 0 ? 1 : 0));
        if (kRemote > 0) arrive_expecting(inbox_full + 8 * i, kRemote * C::kShareBytes * 32);
      }
      publish_barriers();
    };
    if (lane == 0) {
      prefetch_map(q_map);
      prefetch_map(k_map);
      prefetch_map(v_map);
      init_barrier(queries_here, 1);
#pragma unroll
      for (int i = 0; i < C::kStages; ++i) {
        init_barrier(keys_here + 8 * i, 1);
        init_barrier(values_here + 8 * i, 1);
        if (C::kInline) continue;
        init_barrier(keys_free + 8 * i, 4 * C::kRowGroups * C::kQueryTiles);
        init_barrier(values_free + 8 * i, 4 * C::kRowGroups * C::kQueryTiles);
      }
      if (C::kQueryTiles > 1) {
        init_inboxes();
      } else {
        publish_barriers();
      }
      watch.stamp(1);
      await_predecessor();
      if (chunks > 0) {
        arrive_expecting(queries_here, C::kQueryBytes);
#pragma unroll
        for (int i = 0; i < C::kPanels; ++i) {
          copy_tile(queries + i * C::kRows * 128, q_map, i * 64, tile * C::kRows, head, queries_here);
        }
      }
      if (C::kQueryTiles == 1) {
        fetch_first_keys();
        init_inboxes();  // wanted at the end only
        release_successor();
      }
    }
    // That barriers are initialised is published by a fence of its own: nothing else is to be released here, and
    // an arrival that releases waits for all of the thread's memory traffic.
    __syncwarp();
    if (C::kCluster > 1) cluster_arrive_relaxed();
    if (C::kQueryTiles > 1) {
      cluster_wait();  // the others' barriers must be there before they are told anything
      if (lane == 0) {
        fetch_first_keys();
        release_successor();
      }
    }
    watch.stamp(2);
    __syncwarp();
  } else {
    if (C::kCluster > 1) cluster_arrive_relaxed();
  }
  __syncthreads();  // barriers are initialised
  if (warp == C::kAsker) {
    if (lane == 0) {
      if constexpr (C::kInline) {  // as many chunks as stages at most
#pragma unroll
        for (int c = 0; c < C::kStages; ++c) {
          if (c >= C::kKeyGroups && c < chunks) fetch(keys, k_map, c, keys_here, keys_free);
          if (c - C::kKeyGroups >= 0 && c - C::kKeyGroups < chunks) {
            fetch(values, v_map, c - C::kKeyGroups, values_here, values_free);
          }
        }
#pragma unroll
        for (int c = C::kStages - C::kKeyGroups; c < C::kStages; ++c) {
          if (c < chunks) fetch(values, v_map, c, values_here, values_free);
        }
      } else {
        for (int first = 0; first < chunks; first += C::kKeyGroups) {
          const int end = min(first + C::kKeyGroups, chunks);
          if (first > 0) {
            for (int c = first; c < end; ++c) fetch(keys, k_map, c, keys_here, keys_free);
          }
          for (int c = first; c < end; ++c) fetch(values, v_map, c, values_here, values_free);
        }
      }
    }
    watch.stamp(3);
    __syncwarp();
    if constexpr (!C::kInline) {
      watch.write(stamps, C::kThreads / 32, warp);
      return;
    }
  }

  // ---- the warps that compute
  const int group = warp / 4;
  const int key_group = group / C::kRowGroups;
  const int row_group = group % C::kRowGroups;
  const int mine = chunks > key_group ? (chunks - key_group + C::kKeyGroups - 1) / C::kKeyGroups : 0;

  float o[C::kOutSlots];
  float m[2] = {kMasked, kMasked}, l[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < C::kOutSlots; ++i) o[i] = 0.0f;

  watch.stamp(1);

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
    // All have read what stage c lies in, and it will be filled again: tell those who bring it.
    const auto release = [&](std::uint32_t free, int c) {
      if (C::kInline || c + C::kStages >= chunks) return;
      const std::uint32_t bar = free + 8 * (c % C::kStages);
      if constexpr (C::kQueryTiles == 1) {
        if (lane == 0) arrive(bar);
      } else {
        if (lane < C::kQueryTiles) arrive_remote(map_to_rank(bar, part + lane * C::kKeyParts));
      }
    };
    const auto row_max = [&](const auto& s, int h) {
      constexpr int kSlots = sizeof(s) / sizeof(s[0]);
      float even = s[2 * h], odd = s[2 * h + 1];
#pragma unroll
      for (int j = 1; j < kSlots / 4; ++j) {
        even = fmaxf(even, s[4 * j + 2 * h]);
        odd = fmaxf(odd, s[4 * j + 2 * h + 1]);
      }
      return fmaxf(even, odd) * scale;
    };
    const auto over_lanes = [&](float x) {
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
    };

    // Scores of keys `first_key`, ... become weights in p, once the product that reads p has ended; o is rescaled if
    // need be.
    const auto weigh_half = [&](auto& s, auto& p, int first_key, bool fresh, auto&& product_ended) {
      constexpr int kSlots = sizeof(s) / sizeof(s[0]);
      const int left = seq - first_key;
      if (__builtin_expect(left < kSlots * 2, 0)) {
#pragma unroll
        for (int e = 0; e < kSlots; ++e) {
          if (e / 4 * 8 + lane % 4 * 2 + e % 2 >= left) s[e] = kMasked;
        }
      }
      float top[2] = {row_max(s, 0), row_max(s, 1)};
      float factor[2] = {1.0f, 1.0f};
      bool raised = false;
      if (fresh) {
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
        for (int j = 0; j < kSlots / 4; ++j) {
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
      for (int k = 0; k < kSlots / 8; ++k) {
#pragma unroll
        for (int x = 0; x < 4; ++x) p[k][x] = pack_halves(s[8 * k + 2 * x], s[8 * k + 2 * x + 1]);
      }
    };
    unsigned p[C::kHalves ? 1 : C::kChunk / 16][4];
    const auto weigh = [&](float (&s)[C::kScoreSlots], int i, auto&& product_ended) {
      weigh_half(s, p, (first_chunk + chunk_of(i)) * C::kChunk, i == 0, product_ended);
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

    if constexpr (C::kHalves) {
      constexpr int kHalf = C::kChunk / 2;
      float x[kHalf / 2], y[kHalf / 2];
      wait(keys_here + 8 * key_group, 0);
      products_fence();
      const std::uint64_t first = on_keys + key_group * C::kChunkBytes / 16;
#pragma unroll
      for (int k = 0; k < C::kDim / 16; ++k) {
        const std::uint64_t b = first + (k / 4 * C::kChunk * 128 + k % 4 * 32) / 16;
        Wgmma<kHalf>::template ss<false>(x, on_queries + (k / 4 * C::kRows * 128 + k % 4 * 32) / 16, b, k > 0);
      }
      products_commit();
#pragma unroll
      for (int k = 0; k < C::kDim / 16; ++k) {
        const std::uint64_t b = first + (k / 4 * C::kChunk * 128 + kHalf * 128 + k % 4 * 32) / 16;
        Wgmma<kHalf>::template ss<false>(y, on_queries + (k / 4 * C::kRows * 128 + k % 4 * 32) / 16, b, k > 0);
      }
      products_commit();
      watch.stamp(3);
      products_wait<1>();
      watch.stamp(4);
      const int at = (first_chunk + key_group) * C::kChunk;
      unsigned p[kHalf / 16][4], r[kHalf / 16][4];
      weigh_half(x, p, at, true, [&] { products_wait<0>(); });
      watch.stamp(5);
      wait(values_here + 8 * key_group, 0);
      products_fence();
      const std::uint64_t second = on_values + key_group * C::kChunkBytes / 16;
#pragma unroll
      for (int k = 0; k < kHalf / 16; ++k) Wgmma<C::kDim>::template rs<true>(o, p[k], second + k * 2048 / 16, true);
      products_commit();
      weigh_half(y, r, at + kHalf, false, [&] { products_wait<0>(); });
      products_fence();
#pragma unroll
      for (int k = 0; k < kHalf / 16; ++k) {
        Wgmma<C::kDim>::template rs<true>(o, r[k], second + (kHalf / 16 + k) * 2048 / 16, true);
      }
      products_commit();
      products_wait<0>();
    } else {
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
        multiply_values(i - 1);
        if constexpr (C::kPingPong) {
          if (group == 0 || i + 1 < mine) turn_arrive(2 - group);
        }
        products_wait<1>();
        release(keys_free, chunk_of(i));
        weigh(s, i, [&] {
          products_wait<0>();
          release(values_free, chunk_of(i - 1));
        });
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
  }
  watch.stamp(6);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 1);
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 2);
  }

  const int row = tile * C::kRows + row_group * 64 + warp % 4 * 16 + lane / 4;  // and 8 further on
  half* target = out + static_cast<std::size_t>(head) * seq * C::kDim + static_cast<std::size_t>(row) * C::kDim + lane % 4 * 2;
  if constexpr (C::kParts == 1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float f = reciprocal(l[h]);
      if (row + 8 * h < seq) {
#pragma unroll
        for (int j = 0; j < C::kDim / 8; ++j) {
          *reinterpret_cast<unsigned*>(target + 8 * h * C::kDim + j * 8) =
              pack_halves(o[4 * j + 2 * h] * f, o[4 * j + 2 * h + 1] * f);
        }
      }
    }
  } else {
    const int self = part * C::kKeyGroups + key_group;
    const int thread = threadIdx.x % 128;
    if constexpr (C::kKeyParts > 1) cluster_wait();  // the partners' barriers are initialised
    watch.stamp(7);
    // To partner p: its share of the slots, then m and l.
#pragma unroll
    for (int p = 0; p < C::kParts; ++p) {
      if (p == self) continue;
      const int to_group = p % C::kKeyGroups * C::kRowGroups + row_group;
      const int place = (self - p - 1 + C::kParts) % C::kParts;
      std::uint32_t to = base + C::kInboxAt + to_group * C::kInboxBytes + place * C::kShareBytes * 128 + thread * 16;
      std::uint32_t bar = inbox_full + 8 * (to_group * 4 + warp % 4);
      const bool local = C::kKeyParts == 1 || p / C::kKeyGroups == part;
      if (!local) {
        const unsigned there = p / C::kKeyGroups + member * C::kKeyParts;
        to = map_to_rank(to, there);
        bar = map_to_rank(bar, there);
      }
      const auto send = [&](int i, float4 v) {
        if (local) {
          store_shared(to + i * 128 * 16, v);
        } else {
          store_remote(to + i * 128 * 16, v, bar);
        }
      };
      send(0, make_float4(m[p % 2], l[p % 2], 0.0f, 0.0f));
#pragma unroll
      for (int k = 0; k < C::kShare; k += 4) {
        send(1 + k / 4, make_float4(o[slot_of<C>(p, k)], o[slot_of<C>(p, k + 1)], o[slot_of<C>(p, k + 2)],
                                    o[slot_of<C>(p, k + 3)]));
      }
      if (local) {
        __syncwarp();
        if (lane == 0) arrive(bar);
      }
    }
    // What this one finishes. Its slots differ from part to part: chosen, not indexed.
    float own[C::kShare];
#pragma unroll
    for (int k = 0; k < C::kShare; ++k) {
      own[k] = o[slot_of<C>(0, k)];
#pragma unroll
      for (int p = 1; p < C::kParts; ++p) own[k] = self == p ? o[slot_of<C>(p, k)] : own[k];
    }
    const int h = self % 2;
    const std::uint32_t from = base + C::kInboxAt + group * C::kInboxBytes + thread * 16;
    watch.stamp(8);
    wait_cluster(inbox_full + 8 * (group * 4 + warp % 4), 0);
    watch.stamp(9);
    float4 state[C::kParts];
    state[C::kParts - 1] = h == 0 ? make_float4(m[0], l[0], 0.0f, 0.0f) : make_float4(m[1], l[1], 0.0f, 0.0f);
    float top = state[C::kParts - 1].x;
#pragma unroll
    for (int p = 0; p + 1 < C::kParts; ++p) {
      state[p] = load_shared(from + p * C::kShareBytes * 128);
      top = fmaxf(top, state[p].x);
    }
    float total = 0.0f;
    // In the order of the parts' numbers, so that the answer does not depend on who finishes: place i holds part
    // (self + 1 + i) % kParts, and which share is whose is fixed by the shape alone.
#pragma unroll
    for (int p = 0; p < C::kParts; ++p) {
      state[p].x = exp2_unit(state[p].x - top);
      total = fmaf(state[p].x, state[p].y, total);
    }
    const float f = reciprocal(total);
#pragma unroll
    for (int k = 0; k < C::kShare; ++k) own[k] *= state[C::kParts - 1].x;
#pragma unroll
    for (int p = 0; p + 1 < C::kParts; ++p) {
#pragma unroll
      for (int k = 0; k < C::kShare; k += 4) {
        const float4 x = load_shared(from + p * C::kShareBytes * 128 + (1 + k / 4) * 128 * 16);
        own[k] = fmaf(x.x, state[p].x, own[k]);
        own[k + 1] = fmaf(x.y, state[p].x, own[k + 1]);
        own[k + 2] = fmaf(x.z, state[p].x, own[k + 2]);
        own[k + 3] = fmaf(x.w, state[p].x, own[k + 3]);
      }
    }
    if (row + 8 * h < seq) {
      half* share = target + 8 * h * C::kDim + self / 2 * (C::kShare / 2) * 8;
#pragma unroll
      for (int k = 0; k < C::kShare; k += 2) {
        *reinterpret_cast<unsigned*>(share + k / 2 * 8) = pack_halves(own[k] * f, own[k + 1] * f);
      }
    }
  }
  watch.stamp(10);
  watch.write(stamps, C::kThreads / 32, warp);
}

}  // namespace short_attention
