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
//   LAZY        O is rescaled only when a row's maximum has grown by more than 2^8
//   POLYNOMIAL  of 16 exponentials so many on the multipliers
//
// Keys go from the first to the last, so that every row has a finite maximum after its first tile, and what needs a
// mask (the diagonal, the end) comes last.

#include <hopper/barrier.cuh>
#include <hopper/exp2.cuh>
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
constexpr bool kLazy = LAZY;
constexpr int kPolynomial = POLYNOMIAL;

constexpr int kRowsOfConsumer = 64;
constexpr int kRows = kConsumers * kRowsOfConsumer;
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
constexpr int kQBytes = kPanels * kQPanelBytes;  // of a consumer
constexpr int kPanelBytes = kKeys * kPanelRowBytes;
constexpr int kTileBytes = kPanels * kPanelBytes;
constexpr int kKeysAt = kConsumers * kQBytes;
constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
constexpr int kSharedBytes = kBarriersAt + (4 * kStages + 2 * kConsumers) * 8;
static_assert(kSharedBytes <= 227 * 1024, "too many stages");
static_assert(kProducerWarps > 0 || !kOverlap || kStages > 2, "V of the tile before is still being read");
static_assert(kProducerWarps > 0 || (kCluster == 1 && !kPersistent), "what copies of its own a consumer can do");
static_assert(kKeys / kCluster % 8 == 0, "a block's share of a tile is whole groups of rows");

// What a score may lie above the maximum that weights are relative to, in powers of two.
constexpr float kSlack = 8.0f;

struct Barriers {
  uint32_t base;
  __device__ uint32_t k_here(int stage) const { return base + 8 * stage; }
  __device__ uint32_t v_here(int stage) const { return base + 8 * (kStages + stage); }
  __device__ uint32_t k_free(int stage) const { return base + 8 * (2 * kStages + stage); }
  __device__ uint32_t v_free(int stage) const { return base + 8 * (3 * kStages + stage); }
  __device__ uint32_t q_here(int consumer) const { return base + 8 * (4 * kStages + consumer); }
  __device__ uint32_t q_free(int consumer) const { return base + 8 * (4 * kStages + kConsumers + consumer); }
};

// A place in the ring of stages, and the parity of the phase in which it is filled.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
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
    const int tiles = tiles_of(p, first_of_unit, kRows * kCluster);
#pragma unroll 1
    for (int n = 0; n < tiles; ++n) {
      wait(barriers.k_free(place.stage), place.parity ^ 1);
      bring(memory + kKeysAt + place.stage * kTileBytes, k, n * kKeys, kv_head, batch, barriers.k_here(place.stage));
      if (n == 0) {
#pragma unroll
        for (int c = 0; c < kConsumers; ++c) {
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
constexpr int kLag = kStages > 2 ? 2 : 1;

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

// Scores become weights in place. Returns whether O has to be multiplied by `factor` (the same in all lanes).
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
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const float x = fmaf(s[i], scale_log2e, -rows.m[i / 2 % 2]);
    // Spread over the tile, so that both units always have work.
    const bool on_multipliers = (i * kPolynomial) % 16 + kPolynomial > 15;
    s[i] = on_multipliers ? exp2_polynomial(x) : exp2_unit(x);
    sum[i % 4] += s[i];
  }
  rows.l[0] += sum[0] + sum[1];
  rows.l[1] += sum[2] + sum[3];
  return rescale;
}

__device__ __forceinline__ void pack_weights(uint32_t (&w)[kScores / 2], const float (&s)[kScores]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) w[i] = pack(s[2 * i], s[2 * i + 1]);
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

__device__ __forceinline__ void consume(const Problem& p, const CUtensorMap& q_map, const CUtensorMap& k_map,
                                        const CUtensorMap& v_map, const Barriers& barriers, uint32_t memory, void* out,
                                        float* lse, int unit, int units, int rank, int consumer) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const uint32_t queries = memory + consumer * kQBytes;
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
  uint32_t q_parity = 0;
  for (int round = 0;; ++round) {
    const int position = position_at<kPersistent>(round, unit, units);
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int first_of_unit = tile.row_tile * kRows * kCluster;
    const int first_row = first_of_unit + rank * kRows + consumer * kRowsOfConsumer;
    const int tiles_brought = tiles_of(p, first_of_unit, kRows * kCluster);
    const int tiles = tiles_of(p, first_row, kRowsOfConsumer);
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

    const auto mask_tile = [&](int n) {
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
          for (int c = 0; c < kConsumers; ++c) {
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

    wait(barriers.q_here(consumer), q_parity);
    q_parity ^= 1;
    if (kQRegisters) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        load_operand(q[step], queries + step / 4 * kQPanelBytes + warp * 16 * kPanelRowBytes, step % 4 * 2, lane);
      }
      __syncwarp();
      if (lane == 0) arrive(barriers.q_free(consumer));
    }

    if (kOverlap) {
      wait(barriers.k_here(k_place.stage), k_place.parity);
      await_turn();
      products_begin();
      multiply_keys(s, queries, q, memory + kKeysAt + k_place.stage * kTileBytes);
      products_commit();
      pass_turn();
      products_wait<0>();
      pin(s);
      release(barriers.k_free(k_place.stage));
      k_place.next();
      mask_tile(0);
      softmax(s, rows, factor, p.scale_log2e);
      pack_weights(w, s);
#pragma unroll 1
      for (int n = 1; n < tiles; ++n) {
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
        release(barriers.k_free(k_place.stage));
        k_place.next();
        mask_tile(n);
        const bool rescale = softmax(s, rows, factor, p.scale_log2e);
        products_wait<0>();
        pin(o);
        pin(w);
        release(barriers.v_free(v_place.stage));
        v_place.next();
        pack_weights(w, s);
        if (rescale) rescale_output(o, factor);
      }
      if (!kQRegisters && lane == 0) arrive(barriers.q_free(consumer));
      wait(barriers.v_here(v_place.stage), v_place.parity);
      pin(w);
      pin(o);
      products_begin();
      multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
      products_commit();
      products_wait<0>();
      pin(o);
      release(barriers.v_free(v_place.stage));
      v_place.next();
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
        k_place.next();
        mask_tile(n);
        if (softmax(s, rows, factor, p.scale_log2e)) rescale_output(o, factor);
        pack_weights(w, s);
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
        v_place.next();
      }
      if (!kQRegisters && lane == 0) arrive(barriers.q_free(consumer));
    }
    // Tiles that only later rows of the block see. A stage can be given back only after it has come: earlier, the
    // arrival would count for the phase before.
    if (kCausal || kCluster > 1) {
      for (int n = tiles; n < tiles_brought; ++n) {
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pass_turn();
        release(barriers.k_free(k_place.stage));
        k_place.next();
        wait(barriers.v_here(v_place.stage), v_place.parity);
        release(barriers.v_free(v_place.stage));
        v_place.next();
      }
    }

    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.l[h] = quad_sum(rows.l[h]);
      inverse[h] = 1.0f / rows.l[h];
      if (kWriteLse && lane % 4 == 0 && row + 8 * h < p.queries) {
        lse[static_cast<long long>(tile.head) * p.queries + row + 8 * h] =
            (rows.m[h] + log2f(rows.l[h])) * 0.693147180559945f;
      }
    }
    uint16_t* target = static_cast<uint16_t*>(out) + batch * p.out.batch + head * p.out.head + row * p.out.row;
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
        if (row + 8 * h < p.queries) {
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
  extern __shared__ __align__(1024) char shared[];
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
      init_barrier(barriers.k_free(i), kCluster * kConsumers * 4);  // a lane of each warp
      init_barrier(barriers.v_free(i), kCluster * kConsumers * 4);
    }
    for (int i = 0; i < kConsumers; ++i) {
      init_barrier(barriers.q_here(i), 1);
      init_barrier(barriers.q_free(i), 4);
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
