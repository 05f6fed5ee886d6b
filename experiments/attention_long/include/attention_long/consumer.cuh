// A warpgroup with 64 rows of Q: products, softmax, and at the end the rows of O.
#pragma once

#include <attention_long/producer.cuh>
#include <attention_long/products.cuh>
#include <attention_long/softmax.cuh>
#include <hopper/mma.cuh>

namespace attention_long {

using namespace hopper;

__device__ __forceinline__ void consume(const Problem& p, const CUtensorMap& q_map, const CUtensorMap& k_map,
                                        const CUtensorMap& v_map, const Barriers& barriers, uint32_t memory, void* out,
                                        float* lse, int consumer) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const int row_group = consumer % kRowGroups, key_group = consumer / kRowGroups;
  const uint32_t queries = memory + row_group * kQBytes;
  const auto release = [&](uint32_t barrier) {
    // Either does. Which leaves the compiler enough registers differs, where there are 112 and none to spare.
    if (kKeyGroups > 1 ? elected() : lane == 0) arrive(barrier);
  };
  const auto release_keys = [&](const Place& place) {
    if (!kJoint) release(barriers.k_free(place.stage));
  };
  const auto release_values = [&](const Place& place) {
    release(kJoint ? barriers.k_free(place.stage) : barriers.v_free(place.stage));
  };
  const auto await_values = [&](const Place& place) {
    if (!kJoint) wait(barriers.v_here(place.stage), place.parity);
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
    int position = position_at<kPersistent == 1>(round, blockIdx.x, gridDim.x);
    if (kPersistent == 2) {
      const int slot = round % 2;
      wait(barriers.position_here(slot), round / 2 % 2);
      // Reduced over the warp, so that the compiler sees that it is the same for all lanes: its registers for such
      // values, and the loop's bounds, depend on that.
      position = __reduce_max_sync(kAllLanes, shared_positions()[slot]);
      if (lane == 0) arrive(barriers.position_free(slot));
    }
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int first_of_block = tile.row_tile * kRows;
    const int first_row = first_of_block + row_group * kRowsOfConsumer;
    // This key group's: every so many-th.
    const int tiles_brought = tiles_brought_to(p, first_of_block) / kKeyGroups;
    const int tiles = kMayIdle && first_row >= p.queries
                          ? 0
                          : (tiles_of(p, first_row, kRowsOfConsumer) - key_group + kKeyGroups - 1) / kKeyGroups;
    // Tiles before this need no mask.
    const int whole = min(p.keys, kCausal ? first_row + 1 : p.keys) / kKeys;

    float o[kOutputs];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
    Rows rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0.0f, 0.0f}};
    float factor[2];
    float s[kScores];
    uint32_t w[kScores / 2];

    const auto mask_scores = [&](float (&s)[kScores], int nth) {
      const int n = nth * kKeyGroups + key_group;
      if (n >= whole) {
        // The thread's place is asked for again, not kept in registers for the few tiles that need a mask.
        int thread;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        const int row = first_row + thread / 32 % 4 * 16 + thread % 32 / 4;  // and row + 8
        const int own = n * kKeys + thread % 4 * 2;
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
                       first_of_block + c * kRowsOfConsumer, head, batch, barriers.q_here(c));
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

    // Scores of tile n, whose K lies at `place`, become weights; K is given back.
    const auto weigh = [&](int n, float (&s)[kScores], const Place& place) {
      mask_scores(s, n);
      const bool rescale = softmax_assuming(s, rows, factor, p.scale_log2e, [&] {
        multiply_alone<kScores, kSteps>(s, queries + warp * 16 * kPanelRowBytes, kQPanelBytes,
                                        memory + kKeysAt + place.stage * kTileBytes, kPanelBytes, lane);
        mask_scores(s, n);
      });
      release_keys(place);
      return rescale;
    };

    wait(barriers.q_here(row_group), q_parity);
    q_parity ^= 1;
    if ((kKeyGroups > 1 || kMayIdle) && tiles <= 0) {
      release(barriers.q_free(row_group));
    } else if (kOverlap == 2) {
      float s2[kScores];
      Place place = k_place;  // of the tile whose scores are there; k_place is the next one's, v_place the one's before
      const auto issue_keys = [&](float (&s)[kScores]) {
        multiply_keys(s, queries, memory + kKeysAt + k_place.stage * kTileBytes);
        products_commit();
      };
      const auto issue_values = [&] {
        await_values(v_place);
        products_begin();
        multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
        products_commit();
      };
      // Of tile n the scores are there, of the one before the weights.
      const auto turn = [&](int n, float (&s)[kScores], float (&next)[kScores]) {
        await_turn();
        pin(w);
        pin(o);
        pin(next);
        issue_values();
        wait(barriers.k_here(k_place.stage), k_place.parity);
        products_begin();
        issue_keys(next);
        pass_turn();
        const bool rescale = weigh(n, s, place);
        products_wait<1>();
        pin(o);
        pin(w);
        release_values(v_place);
        pack_weights(w, s);
        if (rescale) rescale_output(o, factor);
        products_wait<0>();
        pin(next);
        v_place = place;
        place = k_place;
        k_place.next(kKeyGroups);
      };
      const auto last = [&](int n, float (&s)[kScores]) {
        await_turn();
        pin(w);
        pin(o);
        issue_values();
        pass_turn();
        const bool rescale = weigh(n, s, place);
        products_wait<0>();
        pin(o);
        pin(w);
        release_values(v_place);
        pack_weights(w, s);
        if (rescale) rescale_output(o, factor);
        v_place = place;
      };
      wait(barriers.k_here(k_place.stage), k_place.parity);
      products_begin();
      issue_keys(s);
      products_wait<0>();
      pin(s);
      k_place.next(kKeyGroups);
      const auto first = [&] {
        mask_scores(s, 0);
        softmax<0>(s, rows, factor, p.scale_log2e);
        release_keys(place);
        pack_weights(w, s);
      };
      await_turn();
      pass_turn();
      // Two ways, each in one piece: where they would meet, the second set of scores would have to be copied.
      if (tiles == 1) {
        first();
      } else {
        wait(barriers.k_here(k_place.stage), k_place.parity);
        pin(s2);
        products_begin();
        issue_keys(s2);
        first();
        products_wait<0>();
        pin(s2);
        place = k_place;
        k_place.next(kKeyGroups);
        int n = 1;
#pragma unroll 1
        for (; n + 2 < tiles; n += 2) {
          turn(n, s2, s);
          turn(n + 1, s, s2);
        }
        if (n + 1 < tiles) {
          turn(n, s2, s);
          last(n + 1, s);
        } else {
          last(n, s2);
        }
      }
      release(barriers.q_free(row_group));
      pin(w);
      pin(o);
      issue_values();
      products_wait<0>();
      pin(o);
      release_values(v_place);
      v_place = k_place;
    } else if (kOverlap == 1) {
      wait(barriers.k_here(k_place.stage), k_place.parity);
      await_turn();
      products_begin();
      multiply_keys(s, queries, memory + kKeysAt + k_place.stage * kTileBytes);
      products_commit();
      if (kPingPong == 1) pass_turn();
      products_wait<0>();
      if (kPingPong == 2) pass_turn();
      pin(s);
      release_keys(k_place);
      k_place.next(kKeyGroups);
      mask_scores(s, 0);
      softmax<0>(s, rows, factor, p.scale_log2e);
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
        multiply_keys(s, queries, memory + kKeysAt + k_place.stage * kTileBytes);
        products_commit();
        await_values(v_place);
        products_begin();
        multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
        products_commit();
        if (kPingPong == 1) pass_turn();
        products_wait<1>();
        if (kPingPong == 2) pass_turn();
        pin(s);
        bool rescale;
        if (kLazy < 2) {
          release_keys(k_place);
          mask_scores(s, n);
          rescale = softmax<kLazy % 2>(s, rows, factor, p.scale_log2e);
        } else {
          rescale = weigh(n, s, k_place);
        }
        products_wait<0>();
        pin(o);
        pin(w);
        release_values(v_place);
        v_place = k_place;
        k_place.next(kKeyGroups);
        pack_weights(w, s);
        if (rescale) rescale_output(o, factor);
      }
      release(barriers.q_free(row_group));
      await_values(v_place);
      pin(w);
      pin(o);
      products_begin();
      multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
      products_commit();
      products_wait<0>();
      pin(o);
      release_values(v_place);
      v_place.next(kKeyGroups);
    } else {
#pragma unroll 1
      for (int n = 0; n < tiles; ++n) {
        if (kProducerWarps == 0) fetch_ahead(n);
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pin(s);
        products_begin();
        multiply_keys(s, queries, memory + kKeysAt + k_place.stage * kTileBytes);
        products_commit();
        products_wait<0>();
        pass_turn();
        pin(s);
        release_keys(k_place);
        k_place.next(kKeyGroups);
        mask_scores(s, n);
        if (softmax<kLazy % 2>(s, rows, factor, p.scale_log2e)) rescale_output(o, factor);
        pack_weights(w, s);
        await_values(v_place);
        pin(w);
        pin(o);
        products_begin();
        multiply_values(o, w, memory + kValuesAt + v_place.stage * kTileBytes);
        products_commit();
        products_wait<0>();
        pin(o);
        pin(w);
        release_values(v_place);
        v_place.next(kKeyGroups);
      }
      release(barriers.q_free(row_group));
    }
    // Tiles that only later rows of the block see. A stage can be given back only after it has come: earlier, the
    // arrival would count for the phase before.
    if (kCausal || kKeyGroups > 1 || kMayIdle) {
      for (int n = max(tiles, 0); n < tiles_brought; ++n) {
        wait(barriers.k_here(k_place.stage), k_place.parity);
        await_turn();
        pass_turn();
        release_keys(k_place);
        k_place.next(kKeyGroups);
        await_values(v_place);
        release_values(v_place);
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
        for (int i = 0; i < kOutputs; i += 4) {
          *part_of(key_group, 1 + i / 4) = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
        }
        named_arrive(12 + row_group, kKeyGroups * 128);
        if (kPersistent) continue;
        break;
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
    const int out_row = stored.row_tile * kRows + row_group * kRowsOfConsumer + warp * 16 + lane / 4;
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
    uint16_t* target =
        static_cast<uint16_t*>(out) + out_batch * p.out.batch + out_head * p.out.head + out_row * p.out.row;
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
    if (!kPersistent) break;
  }
}

}  // namespace attention_long
