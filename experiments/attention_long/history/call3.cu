// Attention forward for long sequences on Hopper: both products by wgmma, K and V by bulk tensor copies.
//
// A block has CONSUMERS warpgroups with 64 query rows each and one producer (a warp, or a warpgroup that gives up its
// registers), which keeps STAGES tiles of KEYS keys under way. A consumer holds its scores, weights and part of O in
// registers; only K, V and Q lie in shared memory. Techniques are switches:
//
//   HEAD_DIM 64, 128    KEYS 64 ... 192     CONSUMERS 2 ... 4   STAGES 2 ...
//   CAUSAL              ELEMENT_BF16        WRITE_LSE (natural logarithm of each row's sum of exponentials)
//   PRODUCER_WARPS 1 or 4; 4 moves registers to the consumers (setmaxnreg); 0: a consumer's thread asks for the tiles
//   OVERLAP     products of one tile beside the softmax of the next, in one warpgroup
//   PINGPONG    warpgroups issue their products in turn, so that one's softmax lies beside another's products
//   PERSISTENT  a block an SM goes through many tiles
//   CLUSTER 2   two blocks with neighbouring rows share K and V: each brings half of a tile to both
//   Q_REGISTERS Q as a register operand: less to read from shared memory
//   LAZY 1      O is rescaled only when a row's maximum has grown by more than 2^8
//   LAZY 2      after the first tile a row's maximum is not even looked for, unless a sum of weights says that it has
//               grown by much: exponentials start as soon as scores are there
//   LAZY 3      the same without keeping the scores: when they are needed again, a warp computes them again
//   KEY_GROUPS  so many consumers share 64 rows, each with every so many-th tile of keys, and merge at the end: for
//               grids that would leave multiprocessors without work
//   POLYNOMIAL  of 16 exponentials so many on the multipliers
//
// Keys go from the first to the last, so that every row has a finite maximum after its first tile, and what needs a
// mask (the diagonal, the end) comes last.

#include <hopper/barrier.cuh>
#include <hopper/exp2.cuh>
#include <hopper/mma.cuh>
#include <hopper/registers.cuh>
#include <hopper/tensor_copy.cuh>
#include <hopper/wgmma.cuh>
#include <schedule.cuh>

#include <math_constants.h>

namespace {

using namespace attention;
using namespace hopper;

constexpr int kHeadDim = HEAD_DIM;
constexpr int kKeys = KEYS;
constexpr int kConsumers = CONSUMERS;
constexpr int kStages = STAGES;
constexpr bool kCausal = CAUSAL;
constexpr bool kWriteLse = WRITE_LSE;
constexpr int kProducerWarps = PRODUCER_WARPS;
constexpr bool kOverlap = OVERLAP;
constexpr bool kPingPong = PINGPONG;
constexpr bool kPersistent = PERSISTENT;
constexpr int kCluster = CLUSTER;
constexpr bool kQRegisters = Q_REGISTERS;
constexpr int kLazy = LAZY;
constexpr int kKeyGroups = KEY_GROUPS;
constexpr int kPolynomial = POLYNOMIAL;

constexpr int kRowsOfConsumer = 64;
constexpr int kRowGroups = kConsumers / kKeyGroups;
constexpr int kRows = kRowGroups * kRowsOfConsumer;
constexpr int kThreads = (kConsumers * 4 + kProducerWarps) * 32;
constexpr int kPanels = kHeadDim / kPanelColumns;
constexpr int kSteps = kHeadDim / 16;  // of Q·Kᵀ

// Registers of a thread: the file has 65,536, a block starts with the same for all threads, in eights.
constexpr int kAtStart = 65536 / kThreads / 8 * 8;
constexpr int kProducerRegisters = kConsumers == 2 ? (kCluster > 1 ? 40 : 24) : 32;
constexpr int kConsumerRegisters =
    (kAtStart * kThreads - kProducerRegisters * 128) / (kConsumers * 128) / 8 * 8;

// Shared memory, in bytes.
constexpr int kQPanelBytes = kRowsOfConsumer * kPanelRowBytes;
constexpr int kQBytes = kPanels * kQPanelBytes;  // of a row group
constexpr int kPanelBytes = kKeys * kPanelRowBytes;
constexpr int kTileBytes = kPanels * kPanelBytes;
constexpr int kKeysAt = kRowGroups * kQBytes;
constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
constexpr int kPartBytes = 128 * (kHeadDim / 2 + 4) * 4;  // what a consumer hands over to merge: O, m, l
constexpr int kPartsAt = kValuesAt + kStages * kTileBytes;
constexpr int kBarriersAt = kPartsAt + (kKeyGroups - 1) * kRowGroups * kPartBytes;
constexpr int kSharedBytes = kBarriersAt + (4 * kStages + 2 * kRowGroups) * 8;
static_assert(kSharedBytes <= 227 * 1024, "too many stages");
static_assert(kConsumers % kKeyGroups == 0 && kStages % kKeyGroups == 0, "a key group has stages of its own");
static_assert(kProducerWarps > 0 || kKeyGroups == 1, "what copies of its own a consumer can do");
static_assert(kProducerWarps > 0 || !kOverlap || kStages > 2, "V of the tile before is still being read");
static_assert(kProducerWarps > 0 || (kCluster == 1 && !kPersistent), "what copies of its own a consumer can do");
static_assert(kLazy < 3 || (kOverlap && !kQRegisters), "K and Q still lie in shared memory");
static_assert(kKeys / kCluster % 8 == 0, "a block's share of a tile is whole groups of rows");

// What a score may lie above the maximum that weights are relative to, in powers of two.
constexpr float kSlack = 8.0f;

// What a thread's weights of a row and tile may add up to before a new maximum is looked for: an element's largest
// value is 65,504.
constexpr float kLargestSum = 16384.0f;

struct Barriers {
  uint32_t base;
  __device__ uint32_t k_here(int stage) const { return base + 8 * stage; }
  __device__ uint32_t v_here(int stage) const { return base + 8 * (kStages + stage); }
  __device__ uint32_t k_free(int stage) const { return base + 8 * (2 * kStages + stage); }
  __device__ uint32_t v_free(int stage) const { return base + 8 * (3 * kStages + stage); }
  __device__ uint32_t q_here(int group) const { return base + 8 * (4 * kStages + group); }
  __device__ uint32_t q_free(int group) const { return base + 8 * (4 * kStages + kRowGroups + group); }
};

// A place in the ring of stages, and the parity of the phase in which it is filled.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next(int step = 1) {
    stage += step;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

struct Strides {
  long long batch, head, row;  // elements
};

struct Problem {
  Order order;
  int heads;     // of a batch
  int sharing;   // query heads of a K/V head
  int queries, keys;
  float scale_log2e;
  Strides out;
};

// Tiles of keys that rows first ... first + rows - 1 see.
__device__ __forceinline__ int tiles_of(const Problem& p, int first, int rows) {
  const int seen = kCausal ? min(p.keys, first + rows) : p.keys;
  return (seen + kKeys - 1) / kKeys;
}

// Tiles that come for a unit: each key group gets as many, so that its stages stay its own.
__device__ __forceinline__ int tiles_brought_to(const Problem& p, int first_of_unit) {
  return (tiles_of(p, first_of_unit, kRows * kCluster) + kKeyGroups - 1) / kKeyGroups * kKeyGroups;
}

__device__ __forceinline__ void produce(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                        const CUtensorMap& v, const Barriers& barriers, uint32_t memory, int unit,
                                        int units, int rank) {
  constexpr int kShare = kKeys / kCluster;
  constexpr uint16_t kAll = (1 << kCluster) - 1;
  const uint32_t share_at = rank * kShare * kPanelRowBytes;
  const auto bring = [&](uint32_t to, const CUtensorMap& map, int row, int head, int batch, uint32_t here) {
    arrive_expecting(here, kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const uint32_t at = to + panel * kPanelBytes + share_at;
      if (kCluster == 1) {
        copy_box(at, map, panel * kPanelColumns, row, head, batch, here);
      } else {
        copy_box_to(kAll, at, map, panel * kPanelColumns, row + rank * kShare, head, batch, here);
      }
    }
  };
  Place place;
  uint32_t q_parity = 1;
  for (int round = 0;; ++round) {
    const int position = position_at<kPersistent>(round, unit, units);
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int batch = tile.head / p.heads, head = tile.head - batch * p.heads;
    const int kv_head = head / p.sharing;
    const int first_of_unit = tile.row_tile * kRows * kCluster;
    const int first_row = first_of_unit + rank * kRows;
    const int tiles = tiles_brought_to(p, first_of_unit);
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      wait(barriers.k_free(place.stage), place.parity ^ 1);
      bring(memory + kKeysAt + place.stage * kTileBytes, k, n * kKeys, kv_head, batch, barriers.k_here(place.stage));
      if (n == 0) {
#pragma unroll
        for (int c = 0; c < kRowGroups; ++c) {
          wait(barriers.q_free(c), q_parity);
          arrive_expecting(barriers.q_here(c), kQBytes);
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel) {
            copy_box(memory + c * kQBytes + panel * kQPanelBytes, q, panel * kPanelColumns,
                     first_row + c * kRowsOfConsumer, head, batch, barriers.q_here(c));
          }
        }
        q_parity ^= 1;
      }
      wait(barriers.v_free(place.stage), place.parity ^ 1);
      bring(memory + kValuesAt + place.stage * kTileBytes, v, n * kKeys, kv_head, batch, barriers.v_here(place.stage));
      place.next();
    }
  }
}

// The same without a producer: a thread of the last consumer, which has most tiles, asks for a tile as soon as the one
// kLag before its own has been given back by all. One tile of rows a block.
constexpr int kLag = kStages > 3 ? kStages / 2 : kStages - 1;

struct Refill {
  const CUtensorMap &k, &v;
  const Barriers& barriers;
  uint32_t memory;
  int kv_head, batch, tiles;
  __device__ void keys(int n, const Place& place) const {
    arrive_expecting(barriers.k_here(place.stage), kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(memory + kKeysAt + place.stage * kTileBytes + panel * kPanelBytes, k, panel * kPanelColumns, n * kKeys,
               kv_head, batch, barriers.k_here(place.stage));
    }
  }
  __device__ void values(int n, const Place& place) const {
    arrive_expecting(barriers.v_here(place.stage), kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(memory + kValuesAt + place.stage * kTileBytes + panel * kPanelBytes, v, panel * kPanelColumns,
               n * kKeys, kv_head, batch, barriers.v_here(place.stage));
    }
  }
};

// A row's running maximum (scaled, base 2) and this lane's part of its sum; two rows a thread, g and g + 8.
struct Rows {
  float m[2], l[2];
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

constexpr int kScores = kKeys / 2;  // accumulators of a thread
constexpr int kOutputs = kHeadDim / 2;

// Keys that a row does not see. `limit` is the last one it sees, less the tile's first and the lane's own column.
__device__ __forceinline__ void mask(float (&s)[kScores], const int (&limit)[2]) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (i / 4 * 8 + i % 2 > limit[i / 2 % 2]) s[i] = -CUDART_INF_F;
  }
}

__device__ __forceinline__ void pack_weights(uint32_t (&w)[kScores / 2], const float (&s)[kScores]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) w[i] = pack(s[2 * i], s[2 * i + 1]);
}

// The weight of accumulator i: some on the multipliers, spread over the tile so that both units always have work.
__device__ __forceinline__ float weight(int i, float score, float scale_log2e, const float (&less)[2]) {
  const float x = fmaf(score, scale_log2e, -less[i / 2 % 2]);
  return (i * kPolynomial) % 16 + kPolynomial > 15 ? exp2_polynomial(x) : exp2_unit(x);
}

// Scores become weights in place. Returns whether O has to be multiplied by `factor` (the same in all lanes).
template <int kLazy>  // 0 or 1
__device__ __forceinline__ bool softmax(float (&s)[kScores], Rows& rows, float (&factor)[2], float scale_log2e) {
  float top[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
  for (int i = 4; i < kScores; ++i) top[i % 4] = fmaxf(top[i % 4], s[i]);
  bool rescale = true;
  float raised[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) raised[h] = quad_max(fmaxf(top[2 * h], top[2 * h + 1])) * scale_log2e;
  if (kLazy) rescale = __any_sync(kAllLanes, raised[0] > rows.m[0] + kSlack || raised[1] > rows.m[1] + kSlack);
  if (rescale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      raised[h] = fmaxf(rows.m[h], raised[h]);
      factor[h] = exp2_unit(rows.m[h] - raised[h]);
      rows.m[h] = raised[h];
      rows.l[h] *= factor[h];
    }
  }
  // A row of a later key group may see no key in its first tiles.
  const bool empty[2] = {kCausal && kKeyGroups > 1 && rows.m[0] == -CUDART_INF_F,
                         kCausal && kKeyGroups > 1 && rows.m[1] == -CUDART_INF_F};
  const float less[2] = {empty[0] ? 0.0f : rows.m[0], empty[1] ? 0.0f : rows.m[1]};
  if (empty[0]) factor[0] = 1.0f;
  if (empty[1]) factor[1] = 1.0f;
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    s[i] = weight(i, s[i], scale_log2e, less);
    sum[i % 4] += s[i];
  }
  rows.l[0] += sum[0] + sum[1];
  rows.l[1] += sum[2] + sum[3];
  return rescale;
}

// Weights relative to the maximum so far, packed; scores stay. Only if a weight may have become too large for its
// type, all is done again as above. Sums of positive numbers show that as well as a maximum would, and are needed.
__device__ __forceinline__ bool softmax_assuming(uint32_t (&w)[kScores / 2], float (&s)[kScores], Rows& rows,
                                                 float (&factor)[2], float scale_log2e) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    const float a = weight(i, s[i], scale_log2e, rows.m), b = weight(i + 1, s[i + 1], scale_log2e, rows.m);
    sum[i % 4] += a;
    sum[i % 4 + 1] += b;
    w[i / 2] = pack(a, b);
  }
  const float sums[2] = {sum[0] + sum[1], sum[2] + sum[3]};
  if (__builtin_expect(__any_sync(kAllLanes, !(fmaxf(sums[0], sums[1]) < kLargestSum)), 0)) {
    softmax<0>(s, rows, factor, scale_log2e);
    pack_weights(w, s);
    return true;
  }
  rows.l[0] += sums[0];
  rows.l[1] += sums[1];
  return false;
}

// The same in place; `again` brings the scores back.
template <typename Again>
__device__ __forceinline__ bool softmax_assuming(float (&s)[kScores], Rows& rows, float (&factor)[2],
                                                 float scale_log2e, const Again& again) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    s[i] = weight(i, s[i], scale_log2e, rows.m);
    sum[i % 4] += s[i];
  }
  const float sums[2] = {sum[0] + sum[1], sum[2] + sum[3]};
  if (__builtin_expect(__any_sync(kAllLanes, !(fmaxf(sums[0], sums[1]) < kLargestSum)), 0)) {
    again();
    softmax<0>(s, rows, factor, scale_log2e);
    return true;
  }
  rows.l[0] += sums[0];
  rows.l[1] += sums[1];
  return false;
}

__device__ __forceinline__ void rescale_output(float (&o)[kOutputs], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 % 2];
}

// S = Q · Kᵀ.
__device__ __forceinline__ void multiply_keys(float (&s)[kScores], uint32_t queries, const uint32_t (&q)[kSteps][4],
                                              uint32_t keys) {
  const uint64_t a = rows_descriptor(queries), b = rows_descriptor(keys);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int panel = step / 4, inside = step % 4 * 32;
    const uint64_t on_b = b + (panel * kPanelBytes + inside) / 16;
    if (kQRegisters) {
      Product<kKeys>::registers_by_columns(s, q[step][0], q[step][1], q[step][2], q[step][3], on_b, step > 0);
    } else {
      Product<kKeys>::shared_by_columns(s, a + (panel * kQPanelBytes + inside) / 16, on_b, step > 0);
    }
  }
}

// O += P · V.
__device__ __forceinline__ void multiply_values(float (&o)[kOutputs], const uint32_t (&w)[kScores / 2],
                                                uint32_t values) {
  const uint64_t b = columns_descriptor(values, kPanelBytes);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    Product<kHeadDim>::registers_by_rows(o, w[4 * step], w[4 * step + 1], w[4 * step + 2], w[4 * step + 3],
                                         b + step * 16 * kPanelRowBytes / 16, 1);
  }
}

extern __shared__ __align__(1024) char shared[];

__device__ __forceinline__ char* shared_parts() { return shared + kPartsAt; }

__device__ __forceinline__ void consume(const Problem& p, const CUtensorMap& q_map, const CUtensorMap& k_map,
                                        const CUtensorMap& v_map, const Barriers& barriers, uint32_t memory, void* out,
                                        float* lse, int unit, int units, int rank, int consumer) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const int row_group = consumer % kRowGroups, key_group = consumer / kRowGroups;
  const uint32_t queries = memory + row_group * kQBytes;
  const auto release = [&](uint32_t barrier) {
    if (kCluster == 1) {
      if (lane == 0) arrive(barrier);
    } else {
      if (lane < kCluster) arrive_at(barrier, lane);
    }
  };
  // Whose turn it is to issue products: named barriers 1, 2, ...
  const auto await_turn = [&] {
    if (kPingPong) named_sync(1 + consumer, 256);
  };
  const auto pass_turn = [&] {
    if (kPingPong) named_arrive(1 + (consumer + 1 == kConsumers ? 0 : consumer + 1), 256);
  };
  if (kPingPong && consumer == kConsumers - 1) named_arrive(1, 256);

  Place k_place, v_place;
  k_place.next(key_group);
  v_place.next(key_group);
  uint32_t q_parity = 0;
  for (int round = 0;; ++round) {
    const int position = position_at<kPersistent>(round, unit, units);
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int first_of_unit = tile.row_tile * kRows * kCluster;
    const int first_row = first_of_unit + rank * kRows + row_group * kRowsOfConsumer;
    // This key group's: every so many-th.
    const int tiles_brought = tiles_brought_to(p, first_of_unit) / kKeyGroups;
    const int tiles = (tiles_of(p, first_row, kRowsOfConsumer) - key_group + kKeyGroups - 1) / kKeyGroups;
    // Tiles before this need no mask.
    const int whole = min(p.keys, kCausal ? first_row + 1 : p.keys) / kKeys;
    const int row = first_row + warp * 16 + lane / 4;  // and row + 8

    float o[kOutputs];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
    Rows rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0.0f, 0.0f}};
    float factor[2];
    float s[kScores];
    uint32_t w[kScores / 2];
    uint32_t q[kSteps][4];

    const auto mask_tile = [&](int nth) {
      const int n = nth * kKeyGroups + key_group;
      if (n >= whole) {
        const int own = n * kKeys + lane % 4 * 2;
        const int last = p.keys - 1;
        const int limit[2] = {(kCausal ? min(last, row) : last) - own, (kCausal ? min(last, row + 8) : last) - own};
        mask(s, limit);
      }
    };

    const int batch = tile.head / p.heads, head = tile.head - batch * p.heads;
    const bool fetches = kProducerWarps == 0 && consumer == kConsumers - 1 && warp == 0 && lane == 0;
    const Refill refill = {k_map, v_map, barriers, memory, head / p.sharing, batch, tiles_brought};
    Place refilled;
    if (fetches) {
      for (int n = 0; n < min(kStages, tiles_brought); ++n) {
        refill.keys(n, refilled);
        if (n == 0) {
          for (int c = 0; c < kRowGroups; ++c) {
            arrive_expecting(barriers.q_here(c), kQBytes);
            for (int panel = 0; panel < kPanels; ++panel) {
              copy_box(memory + c * kQBytes + panel * kQPanelBytes, q_map, panel * kPanelColumns,
                       first_of_unit + c * kRowsOfConsumer, head, batch, barriers.q_here(c));
            }
          }
        }
        refill.values(n, refilled);
        refilled.next();
      }
    }
    // Before this consumer's tile n.
    const auto fetch_ahead = [&](int n) {
      const int ahead = n - kLag + kStages;
      if (fetches && n >= kLag && ahead < tiles_brought) {
        wait(barriers.k_free(refilled.stage), refilled.parity ^ 1);
        refill.keys(ahead, refilled);
        wait(barriers.v_free(refilled.stage), refilled.parity ^ 1);
        refill.values(ahead, refilled);
        refilled.next();
      }
    };

    wait(barriers.q_here(row_group), q_parity);
    q_parity ^= 1;
    if (kQRegisters) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        load_operand(q[step], queries + step / 4 * kQPanelBytes + warp * 16 * kPanelRowBytes, step % 4 * 2, lane);
      }
      __syncwarp();
      if (lane == 0) arrive(barriers.q_free(row_group));
    }

    if (kKeyGroups > 1 && tiles <= 0) {
      if (!kQRegisters && lane == 0) arrive(barriers.q_free(row_group));
    } else if (kOverlap) {
      wait(barriers.k_here(k_place.stage), k_place.parity);
      await_turn();
      products_begin();
      multiply_keys(s, queries, q, memory + kKeysAt + k_place.stage * kTileBytes);
      products_commit();
      pass_turn();
      products_wait<0>();
      pin(s);
      release(barriers.k_free(k_place.stage));
      k_place.next(kKeyGroups);
      mask_tile(0);
      softmax<0>(s, rows, factor, p.scale_log2e);
      pack_weights(w, s);
      // One tile: products of its scores and of the weights before, `w`, under way beside the softmax that makes the
      // next weights, `ahead`.
      const auto turn = [&](int n, uint32_t (&w)[kScores / 2], uint32_t (&ahead)[kScores / 2]) {
        if (kProducerWarps == 0) fetch_ahead(n);
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pin(s);
        pin(w);
        pin(o);
        products_begin();
        multiply_keys(s, queries, q, memory + kKeysAt + k_place.stage * kTileBytes);
        products_commit();
        wait(barriers.v_here(v_place.stage), v_place.parity);
        products_begin();
        multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
        products_commit();
        pass_turn();
        products_wait<1>();
        pin(s);
        bool rescale;
        if (kLazy < 3) {
          release(barriers.k_free(k_place.stage));
          mask_tile(n);
          rescale = kLazy == 2 ? softmax_assuming(ahead, s, rows, factor, p.scale_log2e)
                               : softmax<kLazy % 2>(s, rows, factor, p.scale_log2e);
        } else {
          mask_tile(n);
          rescale = softmax_assuming(s, rows, factor, p.scale_log2e, [&] {
            multiply_alone<kScores, kSteps>(s, queries + warp * 16 * kPanelRowBytes, kQPanelBytes,
                                            memory + kKeysAt + k_place.stage * kTileBytes, kPanelBytes, lane);
            mask_tile(n);
          });
          release(barriers.k_free(k_place.stage));
        }
        k_place.next(kKeyGroups);
        products_wait<0>();
        pin(o);
        pin(w);
        release(barriers.v_free(v_place.stage));
        v_place.next(kKeyGroups);
        if (kLazy != 2) pack_weights(ahead, s);
        if (rescale) rescale_output(o, factor);
      };
      if (kLazy != 2) {
#pragma unroll 1
        for (int n = 1; n < tiles; ++n) turn(n, w, w);
      } else {
        // Weights lie in two sets of registers in turn: a set is written while products still read the other.
        uint32_t w2[kScores / 2];
        int n = 1;
#pragma unroll 1
        for (; n + 1 < tiles; n += 2) {
          turn(n, w, w2);
          turn(n + 1, w2, w);
        }
        if (n < tiles) {
          turn(n, w, w2);
#pragma unroll
          for (int i = 0; i < kScores / 2; ++i) w[i] = w2[i];
        }
      }
      if (!kQRegisters && lane == 0) arrive(barriers.q_free(row_group));
      wait(barriers.v_here(v_place.stage), v_place.parity);
      pin(w);
      pin(o);
      products_begin();
      multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
      products_commit();
      products_wait<0>();
      pin(o);
      release(barriers.v_free(v_place.stage));
      v_place.next(kKeyGroups);
    } else {
#pragma unroll 1
      for (int n = 0; n < tiles; ++n) {
        if (kProducerWarps == 0) fetch_ahead(n);
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pin(s);
        products_begin();
        multiply_keys(s, queries, q, memory + kKeysAt + k_place.stage * kTileBytes);
        products_commit();
        products_wait<0>();
        pass_turn();
        pin(s);
        release(barriers.k_free(k_place.stage));
        k_place.next(kKeyGroups);
        mask_tile(n);
        bool rescale;
        if (kLazy < 2 || n == 0) {
          rescale = softmax<kLazy % 2>(s, rows, factor, p.scale_log2e);
          pack_weights(w, s);
        } else {
          rescale = softmax_assuming(w, s, rows, factor, p.scale_log2e);
        }
        if (rescale) rescale_output(o, factor);
        wait(barriers.v_here(v_place.stage), v_place.parity);
        pin(w);
        pin(o);
        products_begin();
        multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
        products_commit();
        products_wait<0>();
        pin(o);
        pin(w);
        release(barriers.v_free(v_place.stage));
        v_place.next(kKeyGroups);
      }
      if (!kQRegisters && lane == 0) arrive(barriers.q_free(row_group));
    }
    // Tiles that only later rows of the block see. A stage can be given back only after it has come: earlier, the
    // arrival would count for the phase before.
    if (kCausal || kCluster > 1 || kKeyGroups > 1) {
      for (int n = max(tiles, 0); n < tiles_brought; ++n) {
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pass_turn();
        release(barriers.k_free(k_place.stage));
        k_place.next(kKeyGroups);
        wait(barriers.v_here(v_place.stage), v_place.parity);
        release(barriers.v_free(v_place.stage));
        v_place.next(kKeyGroups);
      }
    }

    if (kKeyGroups > 1) {
      // Through shared memory, each thread to the thread that has the same elements.
      char* parts = shared_parts() + row_group * kPartBytes + threadIdx.x % 128 * 16;
      const auto part_of = [&](int group, int i) {
        return reinterpret_cast<float4*>(parts + (group - 1) * kRowGroups * kPartBytes + i * 128 * 16);
      };
      if (kPersistent) named_sync(8 + row_group, kKeyGroups * 128);  // the last tile's parts have been read
      if (key_group > 0) {
        *part_of(key_group, 0) = make_float4(rows.m[0], rows.m[1], rows.l[0], rows.l[1]);
#pragma unroll
        for (int i = 0; i < kOutputs; i += 4) *part_of(key_group, 1 + i / 4) = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
        named_arrive(12 + row_group, kKeyGroups * 128);
        continue;
      }
      named_sync(12 + row_group, kKeyGroups * 128);
      float4 other[kKeyGroups];
      float top[2] = {rows.m[0], rows.m[1]};
#pragma unroll
      for (int group = 1; group < kKeyGroups; ++group) {
        other[group] = *part_of(group, 0);
        top[0] = fmaxf(top[0], other[group].x);
        top[1] = fmaxf(top[1], other[group].y);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factor[h] = exp2_unit(rows.m[h] - top[h]);
        rows.l[h] *= factor[h];
        rows.m[h] = top[h];
      }
      rescale_output(o, factor);
#pragma unroll
      for (int group = 1; group < kKeyGroups; ++group) {
        const float f[2] = {exp2_unit(other[group].x - top[0]), exp2_unit(other[group].y - top[1])};
        rows.l[0] = fmaf(other[group].z, f[0], rows.l[0]);
        rows.l[1] = fmaf(other[group].w, f[1], rows.l[1]);
#pragma unroll
        for (int i = 0; i < kOutputs; i += 4) {
          const float4 part = *part_of(group, 1 + i / 4);
          o[i] = fmaf(part.x, f[0], o[i]);
          o[i + 1] = fmaf(part.y, f[0], o[i + 1]);
          o[i + 2] = fmaf(part.z, f[1], o[i + 2]);
          o[i + 3] = fmaf(part.w, f[1], o[i + 3]);
        }
      }
    }

    // Found again rather than kept in registers through the loop.
    int done = position;
    asm volatile("" : "+r"(done));
    const Tile stored = tile_at(p.order, done);
    const int out_batch = stored.head / p.heads, out_head = stored.head - out_batch * p.heads;
    const int out_row = (stored.row_tile * kCluster + rank) * kRows + row_group * kRowsOfConsumer + warp * 16 + lane / 4;
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.l[h] = quad_sum(rows.l[h]);
      inverse[h] = 1.0f / rows.l[h];
      if (kWriteLse && lane % 4 == 0 && out_row + 8 * h < p.queries) {
        lse[static_cast<long long>(stored.head) * p.queries + out_row + 8 * h] =
            (rows.m[h] + log2f(rows.l[h])) * 0.693147180559945f;
      }
    }
    uint16_t* target = static_cast<uint16_t*>(out) + out_batch * p.out.batch + out_head * p.out.head + out_row * p.out.row;
    // Lanes of a quad exchange, so that each stores 16 bytes of a row, and the quad 64.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int block = 0; block < kHeadDim / 8; block += 4) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = (block + j) * 4 + 2 * h;
          words[j] = pack(o[i] * inverse[h], o[i + 1] * inverse[h]);
        }
        transpose_quad(words, lane);
        if (out_row + 8 * h < p.queries) {
          *reinterpret_cast<uint4*>(target + h * 8 * p.out.row + (block + lane % 4) * 8) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }
}

}  // namespace

#if CLUSTER > 1
#define CLUSTER_DIMS __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTER_DIMS
#endif

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                     const __grid_constant__ CUtensorMap v, void* out, float* lse, const __grid_constant__ Problem p) {
  const uint32_t memory = shared_address(shared);
  const Barriers barriers = {memory + kBarriersAt};
  // From one lane, so that the compiler sees that it is the same for a warp.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int rank = kCluster == 1 ? 0 : cluster_rank();
  const int unit = blockIdx.x / kCluster, units = gridDim.x / kCluster;

  if (threadIdx.x == 0) {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    for (int i = 0; i < kStages; ++i) {
      init_barrier(barriers.k_here(i), 1);
      init_barrier(barriers.v_here(i), 1);
      init_barrier(barriers.k_free(i), kCluster * kRowGroups * 4);  // a lane of each warp
      init_barrier(barriers.v_free(i), kCluster * kRowGroups * 4);
    }
    for (int i = 0; i < kRowGroups; ++i) {
      init_barrier(barriers.q_here(i), 1);
      init_barrier(barriers.q_free(i), 4 * kKeyGroups);
    }
    publish_barriers();
  }
  if (kCluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }

  if (kProducerWarps > 0 && warp >= kConsumers * 4) {
    if (kProducerWarps == 4) give_up_registers<kProducerRegisters>();
    if (warp == kConsumers * 4 && threadIdx.x % 32 == 0) {
      produce(p, q, k, v, barriers, memory, unit, units, rank);
    }
  } else {
    if (kProducerWarps == 4) take_registers<kConsumerRegisters>();
    consume(p, q, k, v, barriers, memory, out, lse, unit, units, rank, warp / 4);
  }
  // A block must not end while another of its cluster may still write to its memory or arrive at its barriers.
  if (kCluster > 1) {
    __syncwarp();
    cluster_sync();
  }
}
