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
//   - Merge: each of the partial results finishes its own share of the accumulator's slots, and gets the others'
//     shares from the threads that hold the same slots: no address is computed from a row or column, every access
//     is 16 bytes a lane side by side, and a warp waits for its own partners alone. Maxima and sums go ahead while
//     the last product runs, so that slots travel already divided, as halves, and are only added up. st.async
//     tells the receiver's barrier itself. No block waits for another at its end: a block's last act is to read
//     what the others have sent.
#pragma once

#include "ptx.cuh"
#include "wgmma.cuh"

#ifndef STAMPS
#define STAMPS 0
#endif

namespace short_attention {

using namespace ptx;

constexpr float kMasked = -INFINITY;  // the score of a key that does not exist
constexpr float kLowest = -1e20f;      // what weights are relative to where there is no key: all of them are 0
constexpr float kSlack = 8.0f;         // powers of two that a score may lie above what weights are relative to
constexpr int kStamps = 16;            // of a warp

enum Flags {
  kQueriesInRegisters = 1,
  kOverlapFlag = 2,
  kPolynomial1 = 4,    // 1 of 8 exponentials on the FMA pipe
  kPolynomial2 = 8,    // 2 of 8; both: 3 of 8
  kInlineFlag = 16,
  kPingPongFlag = 32,  // two row groups take turns at the tensor cores
  kDeepFlag = 64,
  kFenceFlag = 128,       // exponentials are done before a product is waited for, whatever the compiler thinks
  kWideStoresFlag = 256,  // the answer is stored 16 bytes a lane, after an exchange between lanes
  kBatchFlag = 1024,      // sums lag a batch of 16 behind the exponentials
  kDirectQueriesFlag = 2048,  // queries come straight into registers, without a copy
  kNoMaximum = 4096, kNoExponential = 8192, kNoValues = 16384,  // ablations: wrong answers
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
  static constexpr bool kQueriesInRegisters = (kFlags_ & (Flags::kQueriesInRegisters | Flags::kDirectQueriesFlag)) != 0;
  static constexpr bool kOverlap = (kFlags_ & Flags::kOverlapFlag) != 0;
  static constexpr bool kPingPong = (kFlags_ & Flags::kPingPongFlag) != 0;
  static constexpr bool kDeep = (kFlags_ & Flags::kDeepFlag) != 0;
  static constexpr bool kInline = (kFlags_ & Flags::kInlineFlag) != 0;
  static constexpr bool kFence = (kFlags_ & Flags::kFenceFlag) != 0;
  static constexpr bool kWideStores = (kFlags_ & Flags::kWideStoresFlag) != 0;
  static constexpr bool kBatch = (kFlags_ & Flags::kBatchFlag) != 0;
  static constexpr bool kDirectQueries = (kFlags_ & Flags::kDirectQueriesFlag) != 0;
  static constexpr bool kNoMaximum = (kFlags_ & Flags::kNoMaximum) != 0;
  static constexpr bool kNoExponential = (kFlags_ & Flags::kNoExponential) != 0;
  static constexpr bool kNoValues = (kFlags_ & Flags::kNoValues) != 0;
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

  // Merge: of kParts partial results each finishes kShare slots a thread, and gets them as halves from the others.
  static constexpr int kParts = kKeyGroups * kKeyParts;
  static constexpr int kShare = kOutSlots / kParts;
  static constexpr int kStateBytes = 32 * 16;          // from a warpgroup to another: m and l of its 64 rows
  static constexpr int kSlotBytes = kShare * 2 * 128;  // and the slots

  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kChunkBytes = kChunk * kDim * 2;
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kChunkBytes;
  static constexpr int kStatesAt = kValuesAt + kStages * kChunkBytes;
  static constexpr int kSlotsAt = kStatesAt + kGroups * (kParts - 1) * kStateBytes;
  static constexpr int kBarriersAt = kSlotsAt + kGroups * (kParts - 1) * kSlotBytes;
  static constexpr int kBoxRows = kChunk < 64 ? kChunk : 64;  // of a copy of keys or queries: small ones come sooner
  static constexpr int kBoxes = kChunk / kBoxRows;
  static constexpr int kBarriers = kRowGroups + (kBoxes + 3) * kStages + 2 * kWarps;
  static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8;

  static_assert(kDim == 64 || kDim == 128, "head dimension");
  static_assert(!kPingPong || (kOverlap && kRowGroups == 2 && kKeyGroups == 1), "turns of two warpgroups in step");
  static_assert(!(kOverlap && kDeep), "one of the two");
  static_assert(!kGivesRegisters || kGroups == 2, "24 and 240 registers");
  static_assert(kShare % 8 == 0, "a share is whole vectors");
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

// One row's columns 0, 1, 8, 9, 16, 17, ... (of this lane). `to`: the row's first column.
template <bool kWide, int kCount>
__device__ __forceinline__ void store_row(half* to, const float (&x)[kCount], bool exists) {
  const int t = threadIdx.x % 4;
  if constexpr (kWide) {
#pragma unroll
    for (int k = 0; k < kCount; k += 8) {
      unsigned w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = pack_halves(x[k + 2 * i], x[k + 2 * i + 1]);
      exchange_quad(w);
      if (exists) *reinterpret_cast<uint4*>(to + (k / 2 + t) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  } else if (exists) {
#pragma unroll
    for (int k = 0; k < kCount; k += 2) {
      *reinterpret_cast<unsigned*>(to + k / 2 * 8 + t * 2) = pack_halves(x[k], x[k + 1]);
    }
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    forward(const half* __restrict__ q, const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
            const __grid_constant__ CUtensorMap v_map, half* __restrict__ out, int seq, float scale,
            unsigned long long* __restrict__ stamps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Stopwatch watch;
  watch.start();

  const std::uint32_t base = shared_address(memory);
  const std::uint32_t queries = base + C::kQueriesAt;
  const std::uint32_t keys = base + C::kKeysAt;
  const std::uint32_t values = base + C::kValuesAt;
  const std::uint32_t queries_here = base + C::kBarriersAt;  // [row group]
  const std::uint32_t keys_here = queries_here + 8 * C::kRowGroups;  // [stage][box]
  const std::uint32_t values_here = keys_here + 8 * C::kBoxes * C::kStages;
  const std::uint32_t keys_free = values_here + 8 * C::kStages;
  const std::uint32_t values_free = keys_free + 8 * C::kStages;
  const std::uint32_t states_here = values_free + 8 * C::kStages;  // [warp]
  const std::uint32_t slots_here = states_here + 8 * C::kWarps;    // [warp]

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int part = C::kKeyParts > 1 ? cluster_rank() : 0;
  const int tile = blockIdx.x / C::kKeyParts;
  const int head = blockIdx.y;

  const int all_chunks = (seq + C::kChunk - 1) / C::kChunk;
  const int part_chunks = (all_chunks + C::kKeyParts - 1) / C::kKeyParts;
  const int first_chunk = part * part_chunks;
  // A group without keys takes a chunk past the end: zeros come, and all of their weights are 0.
  const int real_chunks = max(0, min(part_chunks, all_chunks - first_chunk));
  const int chunks = max(C::kKeyGroups, real_chunks);

  // The first key of the block's chunk number c, in the order in which they are taken.
  const int shift = C::kRotate ? tile % chunks : 0;
  const auto first_key = [&](int c) {
    if (C::kRotate) c = c + shift < chunks ? c + shift : c + shift - chunks;
    if (C::kKeyGroups > 1 && c >= real_chunks) return all_chunks * C::kChunk;
    return (first_chunk + c) * C::kChunk;
  };

  // Asks for the queries of a row group; for a box of keys, or the values, of chunk c. By one thread.
  const auto fetch_queries = [&](int r) {
    arrive_expecting(queries_here + 8 * r, C::kQueryBytes / C::kRowGroups);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_tile(queries + (i * C::kRows + r * 64) * 128, q_map, i * 64, tile * C::kRows + r * 64, head,
                queries_here + 8 * r);
    }
  };
  const auto fetch_keys = [&](int c, int box) {
    const int stage = c % C::kStages;
    const std::uint32_t bar = keys_here + 8 * (stage * C::kBoxes + box);
    arrive_expecting(bar, C::kChunkBytes / C::kBoxes);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_tile(keys + stage * C::kChunkBytes + (i * C::kChunk + box * C::kBoxRows) * 128, k_map, i * 64,
                first_key(c) + box * C::kBoxRows, head, bar);
    }
  };
  const auto fetch_values = [&](int c) {
    const int stage = c % C::kStages;
    const std::uint32_t bar = values_here + 8 * stage;
    arrive_expecting(bar, C::kChunkBytes);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_tile(values + stage * C::kChunkBytes + i * C::kChunk * 128, v_map, i * 64, first_key(c), head, bar);
    }
  };
  const auto init_later = [&](int c) {  // what is not waited for first
#pragma unroll
    for (int i = 0; i < C::kBoxes; ++i) {
      if (c >= C::kKeyGroups) init_barrier(keys_here + 8 * (c * C::kBoxes + i), 1);
    }
    init_barrier(values_here + 8 * c, 1);
    if (C::kInline) return;
    init_barrier(keys_free + 8 * c, 4 * C::kRowGroups);
    init_barrier(values_free + 8 * c, 4 * C::kRowGroups);
  };

  // The queries and each key group's first keys, small boxes, asked for by as many warps as there are: number t of
  // them. Each of these warps initialises what it asks for, and nobody else uses that before the block's barrier.
  constexpr int kFirst = (C::kDirectQueries ? 0 : C::kRowGroups) + C::kKeyGroups * C::kBoxes;
  const auto fetch_first = [&](int t) {
    if (C::kDirectQueries) t += C::kRowGroups;
    if (t < C::kRowGroups) {
      fetch_queries(t);
    } else {
      fetch_keys((t - C::kRowGroups) / C::kBoxes, (t - C::kRowGroups) % C::kBoxes);
    }
  };

  if constexpr (!C::kInline) {
    if (warp >= C::kWarps) {
      // ---- the warp that asks for tiles, and those that are there to give their registers away
      if (warp == C::kWarps && lane == 0) {
#pragma unroll
        for (int i = 0; i < C::kStages; ++i) init_later(i);
        prefetch_map(v_map);
        publish_barriers();
      }
      __syncwarp();
      if (C::kKeyParts > 1) cluster_arrive_relaxed();
      __syncthreads();
      if constexpr (C::kGivesRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (warp == C::kWarps && lane == 0) {
        // Not before the first keys are there: what is asked for later must not hold them up.
        wait(keys_here, 0);
        // A group's keys come one chunk ahead of its values.
#pragma unroll 1
        for (int c = C::kKeyGroups; c < chunks + C::kKeyGroups; ++c) {
          if (c < chunks) {
            if (c >= C::kStages) wait(keys_free + 8 * (c % C::kStages), (c / C::kStages - 1) & 1);
#pragma unroll
            for (int i = 0; i < C::kBoxes; ++i) fetch_keys(c, i);
          }
          const int d = c - C::kKeyGroups;
          if (d >= C::kStages) wait(values_free + 8 * (d % C::kStages), (d / C::kStages - 1) & 1);
          fetch_values(d);
        }
      }
      __syncwarp();
      watch.stamp(3);
      watch.write(stamps, C::kThreads / 32, warp);
      return;
    }
  }

  // ---- the warps that compute
  if (warp == C::kWarps - 1 && lane == 0 && C::kInline) prefetch_map(v_map);
  if (lane == 0) {
    bool first = false;
#pragma unroll
    for (int t = 0; t < kFirst; ++t) {
      if (warp != t % C::kWarps) continue;
      init_barrier(queries_here + 8 * (C::kDirectQueries ? t + C::kRowGroups : t), 1);  // those of the keys come behind
      first = true;
    }
    if (first) {
      publish_barriers();
      await_predecessor();
    }
#pragma unroll
    for (int t = 0; t < kFirst; ++t) {
      if (warp == t % C::kWarps) fetch_first(t);
    }
    watch.stamp(11);
    if (C::kInline) {
#pragma unroll
      for (int c = 0; c < C::kStages; ++c) {
        if (warp == (kFirst + c) % C::kWarps) init_later(c);
      }
    }
    if (C::kParts > 1) {
      init_barrier(states_here + 8 * warp, 1);
      init_barrier(slots_here + 8 * warp, 1);
    }
    publish_barriers();
    if (C::kParts > 1) {
      arrive_expecting(states_here + 8 * warp, (C::kParts - 1) * C::kStateBytes / 4);
      arrive_expecting(slots_here + 8 * warp, (C::kParts - 1) * C::kSlotBytes / 4);
    }
    release_successor();
  }
  // That barriers are initialised is published by a fence of its own: nothing else is to be released here, and
  // an arrival that releases would wait for all memory traffic.
  __syncwarp();
  const int group = warp / 4;
  const int key_group = group / C::kRowGroups;
  const int row_group = group % C::kRowGroups;
  const int row = tile * C::kRows + row_group * 64 + warp % 4 * 16 + lane / 4;  // and 8 further on
  unsigned a[C::kQueriesInRegisters ? C::kDim / 16 : 1][4];
  if constexpr (C::kDirectQueries) {
    await_predecessor();
    const half* from = q + (static_cast<std::size_t>(head) * seq + row) * C::kDim + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < C::kDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[k][i] = 0;
        if (row + i % 2 * 8 < seq) {
          a[k][i] = __ldg(reinterpret_cast<const unsigned*>(from + i % 2 * 8 * C::kDim + k * 16 + i / 2 * 8));
        }
      }
    }
  }
  if (C::kKeyParts > 1) cluster_arrive_relaxed();
  __syncthreads();
  watch.stamp(1);
  if constexpr (C::kGivesRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  if (C::kKeyParts > 1) cluster_wait();  // the partners' barriers are initialised; there is nothing else to do yet

  const int mine = (chunks - key_group + C::kKeyGroups - 1) / C::kKeyGroups;

  float o[C::kOutSlots];
  float m[2] = {kLowest, kLowest}, l[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < C::kOutSlots; ++i) o[i] = 0.0f;

  const int thread = threadIdx.x % 128;
  const int self = key_group + C::kKeyGroups * part;
  // Where partner p keeps what this warp sends to it; all of it by st.async, to the own block too.
  const auto place_at = [&](int p) {
    const int to_group = p % C::kKeyGroups * C::kRowGroups + row_group;
    return to_group * (C::kParts - 1) + (self - p - 1 + C::kParts) % C::kParts;
  };
  const auto barrier_at = [&](std::uint32_t first, int p) {
    return map_to_rank(first + 8 * ((p % C::kKeyGroups * C::kRowGroups + row_group) * 4 + warp % 4), p / C::kKeyGroups);
  };

  // Maxima and sums of this part to its partners, ahead of its last product.
  const auto send_states = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      l[h] += __shfl_xor_sync(0xffffffffu, l[h], 1);
      l[h] += __shfl_xor_sync(0xffffffffu, l[h], 2);
    }
    if (C::kParts == 1) return;
    if (lane % 4 == 0) {
#pragma unroll
      for (int p = 0; p < C::kParts; ++p) {
        if (p == self) continue;
        store_remote(map_to_rank(base + C::kStatesAt + place_at(p) * C::kStateBytes + thread / 4 * 16, p / C::kKeyGroups),
                     make_float4(m[0], l[0], m[1], l[1]), barrier_at(states_here, p));
      }
    }
    __syncwarp();
  };

  {
    const std::uint32_t my_queries = queries + row_group * 64 * 128;
    const std::uint64_t on_queries = descriptor(my_queries, 16);
    const std::uint64_t on_keys = descriptor(keys, 16);
    const std::uint64_t on_values = descriptor(values, C::kChunk * 128);

    if (!C::kDirectQueries) wait(queries_here + 8 * row_group, 0);
    watch.stamp(2);
    if constexpr (C::kQueriesInRegisters && !C::kDirectQueries) {
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
#pragma unroll
      for (int k = 0; k < C::kBoxes; ++k) wait(keys_here + 8 * (stage * C::kBoxes + k), (c / C::kStages) & 1);
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
      float top[2] = {C::kNoMaximum ? s[0] : row_max(s, 0), C::kNoMaximum ? s[2] : row_max(s, 1)};
      float factor[2] = {1.0f, 1.0f};
      bool raised = false;
      if (i == 0) {
        m[0] = fmaxf(over_lanes(top[0]), kLowest);
        m[1] = fmaxf(over_lanes(top[1]), kLowest);
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
      if constexpr (C::kBatch) {
        // An addition right behind its exponential would wait for it, and the next exponential behind that.
        constexpr int kSize = 16;
        float sum[2][2] = {};
#pragma unroll
        for (int first = 0; first <= C::kScoreSlots; first += kSize) {
#pragma unroll
          for (int e = first; e < first + kSize; ++e) {
            if (e < C::kScoreSlots) {
              const float x = fmaf(s[e], scale, -m[e / 2 % 2]);
              const bool polynomial = C::kPolynomial > 0 && e % 8 < 2 * C::kPolynomial && e % 2 == 0;
              s[e] = C::kNoExponential ? x : polynomial ? exp2_polynomial(x) : exp2_unit_in_order(x);
            }
            if (e >= kSize) add_in_order(sum[e / 2 % 2][e % 2], s[e - kSize]);
          }
          if (first < C::kScoreSlots) cut(seq);
        }
        l[0] += sum[0][0] + sum[0][1];
        l[1] += sum[1][0] + sum[1][1];
      } else {
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
            w = C::kNoExponential ? e : polynomial ? exp2_polynomial(e) : exp2_unit(e);
            sum[x] += w;
          }
        }
        l[h] += sum[0] + sum[1];
      }
      }
      if (C::kFence) settle(l[0] + l[1]);
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
      for (int k = 0; k < (C::kNoValues ? 1 : C::kChunk / 16); ++k) {
        Wgmma<C::kDim>::template rs<true>(o, p[k], on_values + (stage * C::kChunkBytes + k * 2048) / 16, true);
      }
      products_commit();
    };

    // What is wanted later is asked for while the first scores are multiplied, by a warp each.
    const auto fetch_rest = [&] {
      if constexpr (C::kInline) {
        if (lane == 0) {
          int t = 0;
#pragma unroll
          for (int c = 0; c < C::kStages; ++c) {
            const int ahead = c + C::kKeyGroups;
            if (ahead < C::kStages) {
              if (warp == t++ % C::kWarps && ahead < chunks) {
#pragma unroll
                for (int i = 0; i < C::kBoxes; ++i) fetch_keys(ahead, i);
              }
            }
            if (warp == t++ % C::kWarps && c < chunks) fetch_values(c);
          }
        }
        __syncwarp();
      }
    };

    float s[C::kScoreSlots];
    if constexpr (C::kOverlap) {
      multiply_keys(s, 0);
      products_commit();
      watch.stamp(3);
      fetch_rest();
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
      send_states();
      multiply_values(mine - 1);
      watch.stamp(15);
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
      fetch_rest();
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
      send_states();
      multiply_values(mine - 1);
    } else {
#pragma unroll 1
      for (int i = 0;;) {
        multiply_keys(s, i);
        products_commit();
        if (i == 0) {
          watch.stamp(3);
          fetch_rest();
        }
        products_wait<0>();
        if (i == 0) watch.stamp(4);
        release(keys_free, chunk_of(i));
        weigh(s, i, [] {});
        if (i == 0) watch.stamp(5);
        if (i + 1 >= mine) send_states();
        multiply_values(i);
        if (++i >= mine) break;
        products_wait<0>();
        release(values_free, chunk_of(i - 1));
      }
    }
  }

  // While the last product runs:
  half* target = out + (static_cast<std::size_t>(head) * seq + row) * C::kDim;
  if constexpr (C::kParts == 1) {
    products_wait<0>();
    watch.stamp(6);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x[C::kOutSlots / 2];
#pragma unroll
      for (int k = 0; k < C::kOutSlots / 2; ++k) x[k] = o[k / 2 * 4 + 2 * h + k % 2] * reciprocal(l[h]);
      store_row<C::kWideStores>(target + 8 * h * C::kDim, x, row + 8 * h < seq);
    }
  } else {
    wait_cluster(states_here + 8 * warp, 0);
    watch.stamp(7);
    float4 state[C::kParts - 1];
    float top[2] = {m[0], m[1]};
#pragma unroll
    for (int i = 0; i < C::kParts - 1; ++i) {
      state[i] = load_shared(base + C::kStatesAt + (group * (C::kParts - 1) + i) * C::kStateBytes + thread / 4 * 16);
      top[0] = fmaxf(top[0], state[i].x);
      top[1] = fmaxf(top[1], state[i].z);
    }
    float factor[2];  // what this part's slots are multiplied by: its weight among the parts, over the sum
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float e = exp2_unit(m[h] - top[h]);
      float total = l[h] * e;
#pragma unroll
      for (int i = 0; i < C::kParts - 1; ++i) {
        total = fmaf(h == 0 ? state[i].y : state[i].w, exp2_unit((h == 0 ? state[i].x : state[i].z) - top[h]), total);
      }
      factor[h] = e * reciprocal(total);
    }
    if (C::kFence) settle(factor[0] + factor[1]);
    products_wait<0>();
    watch.stamp(6);
#pragma unroll
    for (int p = 0; p < C::kParts; ++p) {
      if (p == self) continue;
      const std::uint32_t to =
          map_to_rank(base + C::kSlotsAt + place_at(p) * C::kSlotBytes + thread * 16, p / C::kKeyGroups);
      const std::uint32_t bar = barrier_at(slots_here, p);
#pragma unroll
      for (int k = 0; k < C::kShare; k += 8) {
        const auto word = [&](int i) {
          return __uint_as_float(pack_halves(o[slot_of<C>(p, k + i)] * factor[p % 2], o[slot_of<C>(p, k + i + 1)] * factor[p % 2]));
        };
        store_remote(to + k / 8 * 128 * 16, make_float4(word(0), word(2), word(4), word(6)), bar);
      }
    }
    watch.stamp(8);
    // Its slots differ from part to part: chosen, not indexed.
    const int half_of_rows = self % 2;
    const float f = half_of_rows == 0 ? factor[0] : factor[1];
    float last[C::kShare];
#pragma unroll
    for (int k = 0; k < C::kShare; ++k) {
      last[k] = o[slot_of<C>(0, k)];
#pragma unroll
      for (int p = 1; p < C::kParts; ++p) last[k] = self == p ? o[slot_of<C>(p, k)] : last[k];
      last[k] *= f;
    }
    wait_cluster(slots_here + 8 * warp, 0);
    watch.stamp(9);
#pragma unroll
    for (int i = 0; i < C::kParts - 1; ++i) {
#pragma unroll
      for (int k = 0; k < C::kShare; k += 8) {
        const float4 x = load_shared(base + C::kSlotsAt + (group * (C::kParts - 1) + i) * C::kSlotBytes + thread * 16 + k / 8 * 128 * 16);
        const float words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned word = __float_as_uint(words[j]);
          const float2 two = __half22float2(*reinterpret_cast<const half2*>(&word));
          last[k + 2 * j] += two.x;
          last[k + 2 * j + 1] += two.y;
        }
      }
    }
    store_row<C::kWideStores>(target + 8 * half_of_rows * C::kDim + self / 2 * (C::kShare / 2) * 8, last,
                              row + 8 * half_of_rows < seq);
  }
  watch.stamp(10);
  watch.write(stamps, C::kThreads / 32, warp);
}

}  // namespace short_attention
