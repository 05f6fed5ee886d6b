// Attention forward for short sequences: all keys of a block are in shared memory at once, keys are split over
// warpgroups and over a cluster, and partial results are merged through distributed shared memory.
//
// Weights are relative to the largest score of a warpgroup's *first* chunk; a later chunk raises this reference only if
// it is more than 2^8 larger. To merge, each partial result finishes its share of the accumulators and receives the
// others' shares, as halves, from the threads with the same accumulators: no address is computed from a row or column,
// accesses are 16 bytes per lane, contiguous, and a warp waits only for its partners. st.async itself arrives on the
// receiver's barrier. No block waits for another at its end: a block's last step is to read what the others have
// sent.
#pragma once

#include <attention/clusters/config.cuh>
#include <attention/hopper/barrier.cuh>
#include <attention/hopper/cluster.cuh>
#include <attention/hopper/exp2.cuh>
#include <attention/hopper/registers.cuh>
#include <attention/hopper/tensor_copy.cuh>

namespace clusters {

using namespace hopper;

extern __shared__ __align__(1024) unsigned char cluster_shared[];

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ float2 load_shared_pair(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

// The accumulator that is number k of partial result p's share: rows g or g + 8 by p % 2, columns by p / 2.
template <typename C>
__device__ __forceinline__ constexpr int shared_out(int p, int k) {
  const int j = p / 2 * (C::kShare / 2) + k / 2;  // group of 8 columns
  return j * 4 + p % 2 * 2 + k % 2;
}

// One row's columns 0, 1, 8, 9, 16, 17, ... (of lane 0 of four; the other lanes' are between). `to`: the first column.
template <int kCount>
__device__ __forceinline__ void store_row(half* to, const float (&x)[kCount], bool exists, int lane) {
#pragma unroll
  for (int k = 0; k < kCount; k += 8) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = pack(x[k + 2 * i], x[k + 2 * i + 1]);
    transpose_quad(w, lane);
    if (exists) *reinterpret_cast<uint4*>(to + (k / 2 + lane % 4) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

// The maximum scores of a thread's two rows, to which their weights are relative, and their sums.
struct State {
  float m[2] = {kLowest, kLowest};
  float l[2] = {0.0f, 0.0f};
};

__device__ __forceinline__ float over_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

template <int kCount>
__device__ __forceinline__ float row_max(const float (&s)[kCount], int h, float scale) {
  float even = s[2 * h], odd = s[2 * h + 1];
#pragma unroll
  for (int j = 1; j < kCount / 4; ++j) {
    even = fmaxf(even, s[4 * j + 2 * h]);
    odd = fmaxf(odd, s[4 * j + 2 * h + 1]);
  }
  return fmaxf(even, odd) * scale;
}

// Sends this part's shares to its partners, receives theirs, and stores its own share of the rows.
template <typename C>
__device__ __forceinline__ void merge(const float (&o)[C::kOutputs], const State& state, uint32_t base,
                                      uint32_t shares_here, int part, int group, int warp, int lane, half* target,
                                      long long row_stride, bool exists, bool exists8) {
  // phase: merge
  const int key_group = group / C::kRowGroups;
  const int row_group = group % C::kRowGroups;
  const int thread = threadIdx.x % 128;
  const int self = key_group + C::kKeyGroups * part;
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) inverse[h] = state.l[h] > 0.0f ? reciprocal(state.l[h]) : 0.0f;
#pragma unroll
  for (int p = 0; p < C::kParts; ++p) {
    if (p == self) continue;
    const int h = p % 2;
    const int to_group = p % C::kKeyGroups * C::kRowGroups + row_group;
    const int place = to_group * (C::kParts - 1) + (self - p - 1 + C::kParts) % C::kParts;
    const int rank = p / C::kKeyGroups;
    const uint32_t barrier = map_to_rank(shares_here + 8 * (to_group * 4 + warp % 4), rank);
    const uint32_t to = map_to_rank(base + C::kSharesAt + place * C::kShareBytes + thread * 16, rank);
    if (lane % 4 == 0) {
      store_remote(map_to_rank(base + C::kStatesAt + place * C::kStateBytes + thread / 4 * 8, rank),
                   make_float2(state.m[h], state.l[h]), barrier);
    }
#pragma unroll
    for (int k = 0; k < C::kShare; k += 8) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = pack(o[shared_out<C>(p, k + 2 * i)] * inverse[h], o[shared_out<C>(p, k + 2 * i + 1)] * inverse[h]);
      }
      store_remote(to + k / 8 * 128 * 16, w, barrier);
    }
  }
  // The accumulators depend on the part: selected, not indexed.
  const int half_of_rows = self % 2;
  const float my_m = half_of_rows == 0 ? state.m[0] : state.m[1];
  const float my_l = half_of_rows == 0 ? state.l[0] : state.l[1];
  float last[C::kShare];
#pragma unroll
  for (int k = 0; k < C::kShare; ++k) {
    last[k] = o[shared_out<C>(0, k)];
#pragma unroll
    for (int p = 1; p < C::kParts; ++p) last[k] = self == p ? o[shared_out<C>(p, k)] : last[k];
  }
  wait_for_cluster(shares_here + 8 * warp, 0);
  const int mine_at = group * (C::kParts - 1);
  float2 theirs[C::kParts - 1];
  float top = my_m;
#pragma unroll
  for (int i = 0; i < C::kParts - 1; ++i) {
    theirs[i] = load_shared_pair(base + C::kStatesAt + (mine_at + i) * C::kStateBytes + thread / 4 * 8);
    top = fmaxf(top, theirs[i].x);
  }
  const float own = exp2_unit(my_m - top);
  float total = my_l * own;
#pragma unroll
  for (int i = 0; i < C::kParts - 1; ++i) {
    theirs[i].y *= exp2_unit(theirs[i].x - top);
    total += theirs[i].y;
  }
  const float over = reciprocal(total);
#pragma unroll
  for (int k = 0; k < C::kShare; ++k) last[k] *= own * over;
#pragma unroll
  for (int i = 0; i < C::kParts - 1; ++i) {
    const float weight = theirs[i].y * over;
#pragma unroll
    for (int k = 0; k < C::kShare; k += 8) {
      const uint4 x = load_shared(base + C::kSharesAt + (mine_at + i) * C::kShareBytes + thread * 16 + k / 8 * 128 * 16);
      const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 two = __half22float2(*reinterpret_cast<const half2*>(&words[j]));
        last[k + 2 * j] = fmaf(two.x, weight, last[k + 2 * j]);
        last[k + 2 * j + 1] = fmaf(two.y, weight, last[k + 2 * j + 1]);
      }
    }
  }
  // phase: store
  store_row(target + 8 * half_of_rows * row_stride + self / 2 * (C::kShare / 2) * 8, last,
            half_of_rows == 0 ? exists : exists8, lane);
}

// One block: kRows queries of head blockIdx.y of batch blockIdx.z. Row r sees keys before r + ahead. `sharing`: query
// heads per K/V head. `scale`: includes log2 e.
template <typename C>
__device__ __forceinline__ void forward(const CUtensorMap& q_map, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                        half* out, const Strides& strides, int seq, int ahead, int sharing,
                                        float scale) {
  // phase: start
  const uint32_t base = shared_address(cluster_shared);
  const uint32_t queries = base;
  const uint32_t keys = base + C::kKeysAt;
  const uint32_t values = base + C::kValuesAt;
  const uint32_t queries_here = base + C::kBarriersAt;
  const uint32_t keys_here = queries_here + 8;                // [stage]
  const uint32_t values_here = keys_here + 8 * C::kStages;    // [stage]
  const uint32_t shares_here = values_here + 8 * C::kStages;  // [warp]

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int part = cluster_rank();
  const int tile = blockIdx.x / C::kKeyParts;
  const int head = blockIdx.y;
  const int kv_head = head / sharing;

  const int all_chunks = (seq + C::kChunk - 1) / C::kChunk;
  const int part_chunks = (all_chunks + C::kKeyParts - 1) / C::kKeyParts;
  const int first_chunk = part * part_chunks;
  // A group without keys loads a chunk past the end: it is all zeros, and all of its weights are 0.
  const int real_chunks = max(0, min(part_chunks, all_chunks - first_chunk));
  const int chunks = max(C::kKeyGroups, real_chunks);
  const auto first_key = [&](int c) {
    if (C::kKeyGroups > 1 && c >= real_chunks) return all_chunks * C::kChunk;
    return (first_chunk + c) * C::kChunk;
  };

  // One thread issues all copies, in the order of their use: copies issued by several warps share the engine, and all
  // of them arrive late.
  const auto fetch = [&](uint32_t to, const CUtensorMap& map, int rows, int first_row, int of_head, uint32_t here) {
    arrive_expecting(here, rows * C::kDim * 2);
#pragma unroll
    for (int i = 0; i < C::kPanels; ++i) {
      copy_box(to + i * rows * kPanelRowBytes, map, i * kPanelColumns, first_row, of_head, blockIdx.z, here);
    }
  };
  const auto fetch_keys = [&](int c) {
    fetch(keys + c * C::kChunkBytes, k_map, C::kChunk, first_key(c), kv_head, keys_here + 8 * c);
  };
  const auto fetch_values = [&](int c) {
    fetch(values + c * C::kChunkBytes, v_map, C::kChunk, first_key(c), kv_head, values_here + 8 * c);
  };

  if (lane == 0) {
    if (warp == 0) {
      prefetch_map(q_map);
      prefetch_map(k_map);
      prefetch_map(v_map);
      // The queries and each key group's first keys: no other block uses their barriers before this block does.
#pragma unroll
      for (int t = 0; t < 1 + C::kKeyGroups; ++t) init_barrier(queries_here + 8 * t, 1);
      publish_barriers();
      fetch(queries, q_map, C::kRows, tile * C::kRows, head, queries_here);
#pragma unroll
      for (int c = 0; c < C::kKeyGroups; ++c) fetch_keys(c);
    }
    if (warp == C::kWarps - 1) {
#pragma unroll
      for (int c = 0; c < C::kStages; ++c) {
        if (c >= C::kKeyGroups) init_barrier(keys_here + 8 * c, 1);
        init_barrier(values_here + 8 * c, 1);
      }
    }
    init_barrier(shares_here + 8 * warp, 1);
    publish_barriers();
    arrive_expecting(shares_here + 8 * warp, (C::kParts - 1) * (C::kStateBytes + C::kShareBytes) / 4);
  }
  __syncwarp();
  cluster_arrive_relaxed();
  __syncthreads();
  if (warp == 0 && lane == 0) {
#pragma unroll
    for (int c = 0; c < C::kStages; ++c) {
      const int ahead_of_values = c + C::kKeyGroups;
      if (ahead_of_values < C::kStages && ahead_of_values < chunks) fetch_keys(ahead_of_values);
      if (c < chunks) fetch_values(c);
    }
  }
  __syncwarp();
  cluster_wait();  // the partners' barriers are initialized; there is no other work yet

  const int group = warp / 4;
  const int key_group = group / C::kRowGroups;
  const int row_group = group % C::kRowGroups;
  const int row = tile * C::kRows + row_group * 64 + warp % 4 * 16 + lane / 4;  // and 8 further
  const int mine = (chunks - key_group + C::kKeyGroups - 1) / C::kKeyGroups;

  float o[C::kOutputs];
#pragma unroll
  for (int i = 0; i < C::kOutputs; ++i) o[i] = 0.0f;
  State state;
  uint32_t w[C::kScores / 2];

  const uint64_t on_queries = rows_descriptor(queries + row_group * 64 * kPanelRowBytes);
  const uint64_t on_keys = rows_descriptor(keys);
  const uint64_t on_values = columns_descriptor(values, C::kChunk * kPanelRowBytes);
  // phase: load
  wait(queries_here, 0);

  // Starts s = Q · Kᵀ of this group's chunk i.
  const auto multiply_keys = [&](float (&s)[C::kScores], int i) {
    const int c = key_group + i * C::kKeyGroups;
    wait(keys_here + 8 * c, 0);
    // phase: scores
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kDim / 16; ++k) {
      const uint64_t b = on_keys + (c * C::kChunkBytes + k / 4 * C::kChunk * kPanelRowBytes + k % 4 * 32) / 16;
      Product<C::kChunk>::shared_by_columns(s, on_queries + (k / 4 * C::kRows * kPanelRowBytes + k % 4 * 32) / 16, b,
                                            k > 0);
    }
    products_commit();
  };
  // Starts o += P · V of chunk i.
  const auto multiply_values = [&](int i) {
    const int c = key_group + i * C::kKeyGroups;
    // phase: load
    wait(values_here + 8 * c, 0);
    // phase: output
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kChunk / 16; ++k) {
      Product<C::kDim>::registers_by_rows(o, w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3],
                                          on_values + (c * C::kChunkBytes + k * 16 * kPanelRowBytes) / 16, 1);
    }
    products_commit();
  };
  // phase: softmax
  // Scores of chunk i become weights in w after the product that reads w has ended; O is rescaled if necessary.
  const auto weigh = [&](float (&s)[C::kScores], int i, auto&& product_ended) {
    // The number of this chunk's keys that its rows see; the lower row never sees fewer.
    const int first = first_key(key_group + i * C::kKeyGroups);
    const int seen[2] = {min(seq, row + ahead) - first, min(seq, row + 8 + ahead) - first};
    if (seen[0] < C::kChunk) {
#pragma unroll
      for (int e = 0; e < C::kScores; ++e) {
        if (e / 4 * 8 + lane % 4 * 2 + e % 2 >= seen[e / 2 % 2]) s[e] = kMasked;
      }
    }
    const float top[2] = {row_max(s, 0, scale), row_max(s, 1, scale)};
    float factor[2] = {1.0f, 1.0f};
    bool raised = false;
    if (i == 0) {
      state.m[0] = fmaxf(over_quad(top[0]), kLowest);
      state.m[1] = fmaxf(over_quad(top[1]), kLowest);
    } else {
      raised = __any_sync(kAllLanes, top[0] > state.m[0] + kSlack || top[1] > state.m[1] + kSlack);
      if (__builtin_expect(raised, 0)) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float now = fmaxf(state.m[h], over_quad(top[h]));
          factor[h] = exp2_unit(state.m[h] - now);
          state.m[h] = now;
          state.l[h] *= factor[h];
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
          float& score = s[4 * j + 2 * h + x];
          score = exp2_unit(fmaf(score, scale, -state.m[h]));
          sum[x] += score;
        }
      }
      state.l[h] += sum[0] + sum[1];
    }
    product_ended();
    if (__builtin_expect(raised, 0)) {
#pragma unroll
      for (int e = 0; e < C::kOutputs; ++e) o[e] *= factor[e / 2 % 2];
    }
#pragma unroll
    for (int k = 0; k < C::kScores / 2; ++k) w[k] = pack(s[2 * k], s[2 * k + 1]);
  };
  // phase: scores
  float s[C::kScores];
  multiply_keys(s, 0);
  products_wait<0>();
  pin(s);
  weigh(s, 0, [] {});
#pragma unroll 1
  for (int i = 1; i < mine; ++i) {
    if constexpr (C::kOverlap) {
      if constexpr (C::kTurns) {
        // Warpgroup 0 goes first: its first turn is signaled before the loop.
        if (i == 1 && group == 1) named_arrive(1, 256);
        named_sync(1 + group, 256);
      }
      multiply_keys(s, i);
      multiply_values(i - 1);
      if constexpr (C::kTurns) {
        if (group == 0 || i + 1 < mine) named_arrive(2 - group, 256);
      }
      products_wait<1>();
      pin(s);
      weigh(s, i, [&] {
        // phase: output
        products_wait<0>();
        pin(o);
        pin(w);
      });
      // phase: scores
    } else {
      // phase: output
      multiply_values(i - 1);
      products_wait<0>();
      pin(o);
      pin(w);
      // phase: scores
      multiply_keys(s, i);
      products_wait<0>();
      pin(s);
      weigh(s, i, [] {});
    }
  }
  // phase: output
  multiply_values(mine - 1);
  // While the last product runs: sums over the four lanes that share a row.
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.l[h] += __shfl_xor_sync(kAllLanes, state.l[h], 1);
    state.l[h] += __shfl_xor_sync(kAllLanes, state.l[h], 2);
  }
  products_wait<0>();
  pin(o);
  half* target = out + blockIdx.z * strides.batch + head * strides.head + row * strides.row;
  merge<C>(o, state, base, shares_here, part, group, warp, lane, target, strides.row, row < seq, row + 8 < seq);
}

}  // namespace clusters
