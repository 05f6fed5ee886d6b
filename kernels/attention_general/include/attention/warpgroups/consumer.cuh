// A warpgroup with 64 rows of Q: products, softmax, and at the end the rows of O.
#pragma once

#include <attention/hopper/mma.cuh>
#include <attention/warpgroups/pipeline.cuh>
#include <attention/warpgroups/products.cuh>
#include <attention/warpgroups/softmax.cuh>
#include <attention/warpgroups/store.cuh>

namespace warpgroups {

using namespace hopper;

template <typename C>
__device__ __forceinline__ void consume(const Problem& p, const Barriers<C>& barriers, uint32_t memory, void* out,
                                        float* lse, int consumer) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const int row_group = consumer % C::kRowGroups, key_group = consumer / C::kRowGroups;
  const uint32_t queries = memory + row_group * C::kQBytes;
  const auto release = [&](uint32_t barrier) {
    // Both work. Which one leaves the compiler enough registers differs: there are only 112.
    if (C::kKeyGroups > 1 ? elected() : lane == 0) arrive(barrier);
  };
  const auto release_keys = [&](const Place<C>& place) {
    if (!C::kJoint) release(barriers.k_free(place.stage));
  };
  const auto release_values = [&](const Place<C>& place) {
    release(C::kJoint ? barriers.k_free(place.stage) : barriers.v_free(place.stage));
  };
  const auto await_values = [&](const Place<C>& place) {
    if (!C::kJoint) wait(barriers.v_here(place.stage), place.parity);
  };
  // Whose turn it is to issue products: named barriers 1, 2, ...
  const auto await_turn = [&] {
    if (C::kPingPong) named_sync(1 + consumer, 256);
  };
  const auto pass_turn = [&] {
    if (C::kPingPong) named_arrive(1 + (consumer + 1 == C::kConsumers ? 0 : consumer + 1), 256);
  };
  if (C::kPingPong && consumer == C::kConsumers - 1) named_arrive(1, 256);

  Place<C> k_place, v_place;
  k_place.next(key_group);
  v_place.next(key_group);
  uint32_t q_parity = 0;
  for (int round = 0;; ++round) {
    int position = position_at<C::kPersistent == 1>(round, blockIdx.x, gridDim.x);
    if (C::kPersistent == 2) {
      const int slot = round % 2;
      wait(barriers.position_here(slot), round / 2 % 2);
      // Reduced over the warp, so that the compiler knows that the value is uniform: uniform registers and the loop's
      // bounds depend on it.
      position = __reduce_max_sync(kAllLanes, shared_positions<C>()[slot]);
      arrive(barriers.position_free(slot));
    }
    if (position >= p.order.positions) break;
    const Tile tile = tile_at(p.order, position);
    const int first_of_block = tile.row_tile * C::kRows;
    const int first_row = first_of_block + row_group * C::kRowsOfConsumer;
    // This key group's tiles: every n-th.
    const int tiles_brought = tiles_brought_to<C>(p, first_of_block) / C::kKeyGroups;
    const int tiles = C::kMayIdle && first_row >= p.queries
                          ? 0
                          : (tiles_to<C>(p, first_row + C::kRowsOfConsumer - 1) - key_group + C::kKeyGroups - 1) / C::kKeyGroups;
    // Tiles before this one need no mask.
    const int whole = keys_seen(p, first_row) / C::kKeys;

    float o[C::kOutputs];
#pragma unroll
    for (int i = 0; i < C::kOutputs; ++i) o[i] = 0.0f;
    Rows rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0.0f, 0.0f}};
    float factor[2];
    float s[C::kScores];
    uint32_t w[C::kScores / 2];

    // phase: softmax
    const auto mask_scores = [&](float (&s)[C::kScores], int nth) {
      const int n = nth * C::kKeyGroups + key_group;
      if (n >= whole) {
        // The thread's rows are recomputed, to save registers outside the few tiles that need a mask.
        int thread, masked = position;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread), "+r"(masked));
        const int first = tile_at(p.order, masked).row_tile * C::kRows + row_group * C::kRowsOfConsumer;
        const int row = first + thread / 32 % 4 * 16 + thread % 32 / 4;  // and row + 8
        const int own = n * C::kKeys + thread % 4 * 2;
        const int limit[2] = {keys_seen(p, row) - 1 - own, keys_seen(p, row + 8) - 1 - own};
        mask<C>(s, limit);
      }
    };

    // phase: load
    // phase: softmax
    // Scores of tile n, whose K is at `place`, become weights; K's stage is released.
    const auto weigh = [&](int n, float (&s)[C::kScores], const Place<C>& place) {
      mask_scores(s, n);
      const bool rescale = softmax_assuming<C>(s, rows, factor, p.scale_log2e, [&] {
        multiply_alone<C::kScores, C::kSteps>(s, queries + warp * 16 * kPanelRowBytes, C::kQPanelBytes,
                                              memory + C::kKeysAt + place.stage * C::kTileBytes, C::kPanelBytes, lane);
        mask_scores(s, n);
      });
      release_keys(place);
      return rescale;
    };

    // phase: load
    wait(barriers.q_here(row_group), q_parity);
    q_parity ^= 1;
    if ((C::kKeyGroups > 1 || C::kMayIdle) && tiles <= 0) {
      release(barriers.q_free(row_group));
    } else if (C::kOverlap) {
      // phase: load
      wait(barriers.k_here(k_place.stage), k_place.parity);
      // phase: scores
      await_turn();
      products_begin();
      multiply_keys<C>(s, queries, memory + C::kKeysAt + k_place.stage * C::kTileBytes);
      products_commit();
      pass_turn();
      products_wait<0>();
      pin(s);
      release_keys(k_place);
      k_place.next(C::kKeyGroups);
      // phase: softmax
      mask_scores(s, 0);
      softmax<C, 0>(s, rows, factor, p.scale_log2e);
      pack_weights<C>(w, s);
#pragma unroll 1
      for (int n = 1; n < tiles; ++n) {
        // phase: load
        wait(barriers.k_here(k_place.stage), k_place.parity);
        // phase: scores
        await_turn();
        pin(s);
        pin(w);
        pin(o);
        products_begin();
        multiply_keys<C>(s, queries, memory + C::kKeysAt + k_place.stage * C::kTileBytes);
        products_commit();
        // phase: load
        await_values(v_place);
        // phase: output
        products_begin();
        multiply_values<C>(o, w, memory + C::kValuesAt + v_place.stage * C::kTileBytes);
        products_commit();
        pass_turn();
        products_wait<1>();
        pin(s);
        // phase: softmax
        bool rescale;
        if (C::kLazy < 2) {
          release_keys(k_place);
          mask_scores(s, n);
          rescale = softmax<C, C::kLazy % 2>(s, rows, factor, p.scale_log2e);
        } else {
          rescale = weigh(n, s, k_place);
        }
        // phase: output
        products_wait<0>();
        pin(o);
        pin(w);
        release_values(v_place);
        v_place = k_place;
        k_place.next(C::kKeyGroups);
        // phase: softmax
        pack_weights<C>(w, s);
        if (rescale) rescale_output<C>(o, factor);
      }
      release(barriers.q_free(row_group));
      // phase: load
      await_values(v_place);
      // phase: output
      pin(w);
      pin(o);
      products_begin();
      multiply_values<C>(o, w, memory + C::kValuesAt + v_place.stage * C::kTileBytes);
      products_commit();
      products_wait<0>();
      pin(o);
      release_values(v_place);
      v_place.next(C::kKeyGroups);
    } else {
#pragma unroll 1
      for (int n = 0; n < tiles; ++n) {
        // phase: load
        wait(barriers.k_here(k_place.stage), k_place.parity);
        // phase: scores
        await_turn();
        pin(s);
        products_begin();
        multiply_keys<C>(s, queries, memory + C::kKeysAt + k_place.stage * C::kTileBytes);
        products_commit();
        products_wait<0>();
        pass_turn();
        pin(s);
        release_keys(k_place);
        k_place.next(C::kKeyGroups);
        // phase: softmax
        mask_scores(s, n);
        if (softmax<C, C::kLazy % 2>(s, rows, factor, p.scale_log2e)) rescale_output<C>(o, factor);
        pack_weights<C>(w, s);
        // phase: load
        await_values(v_place);
        // phase: output
        pin(w);
        pin(o);
        products_begin();
        multiply_values<C>(o, w, memory + C::kValuesAt + v_place.stage * C::kTileBytes);
        products_commit();
        products_wait<0>();
        pin(o);
        pin(w);
        release_values(v_place);
        v_place.next(C::kKeyGroups);
      }
      release(barriers.q_free(row_group));
    }
    // phase: load
    // Tiles that only later rows of the block see. A stage can be released only after its tile has arrived; before,
    // the arrival would count for the previous phase.
    int ended = position;  // recomputed to save a register in the loop
    asm volatile("" : "+r"(ended));
    const int brought = tiles_brought_to<C>(p, tile_at(p.order, ended).row_tile * C::kRows) / C::kKeyGroups;
    for (int n = max(tiles, 0); n < brought; ++n) {
      wait(barriers.k_here(k_place.stage), k_place.parity);
      await_turn();
      pass_turn();
      release_keys(k_place);
      k_place.next(C::kKeyGroups);
      await_values(v_place);
      release_values(v_place);
      v_place.next(C::kKeyGroups);
    }

    // phase: merge
    if (C::kKeyGroups > 1) {
      // Through shared memory, each thread to the thread with the same elements.
      char* parts = shared + C::kPartsAt + row_group * C::kPartBytes + threadIdx.x % 128 * 16;
      const auto part_of = [&](int group, int i) {
        return reinterpret_cast<float4*>(parts + (group - 1) * C::kRowGroups * C::kPartBytes + i * 128 * 16);
      };
      if (C::kPersistent) named_sync(8 + row_group, C::kKeyGroups * 128);  // the last tile's parts have been read
      if (key_group > 0) {
        *part_of(key_group, 0) = make_float4(rows.m[0], rows.m[1], rows.l[0], rows.l[1]);
#pragma unroll
        for (int i = 0; i < C::kOutputs; i += 4) {
          *part_of(key_group, 1 + i / 4) = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
        }
        named_arrive(12 + row_group, C::kKeyGroups * 128);
        if (C::kPersistent) continue;
        break;
      }
      named_sync(12 + row_group, C::kKeyGroups * 128);
      float4 other[C::kKeyGroups];
      float top[2] = {rows.m[0], rows.m[1]};
#pragma unroll
      for (int group = 1; group < C::kKeyGroups; ++group) {
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
      rescale_output<C>(o, factor);
#pragma unroll
      for (int group = 1; group < C::kKeyGroups; ++group) {
        const float f[2] = {exp2_unit(other[group].x - top[0]), exp2_unit(other[group].y - top[1])};
        rows.l[0] = fmaf(other[group].z, f[0], rows.l[0]);
        rows.l[1] = fmaf(other[group].w, f[1], rows.l[1]);
#pragma unroll
        for (int i = 0; i < C::kOutputs; i += 4) {
          const float4 part = *part_of(group, 1 + i / 4);
          o[i] = fmaf(part.x, f[0], o[i]);
          o[i + 1] = fmaf(part.y, f[0], o[i + 1]);
          o[i + 2] = fmaf(part.z, f[1], o[i + 2]);
          o[i + 3] = fmaf(part.w, f[1], o[i + 3]);
        }
      }
    }

    // phase: store
    // Recomputed to save registers in the loop.
    int done = position;
    asm volatile("" : "+r"(done));
    const Tile stored = tile_at(p.order, done);
    const int out_batch = stored.head / p.heads, out_head = stored.head - out_batch * p.heads;
    const int out_row = stored.row_tile * C::kRows + row_group * C::kRowsOfConsumer + warp * 16 + lane / 4;
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.l[h] = quad_sum(rows.l[h]);
      inverse[h] = 1.0f / rows.l[h];
      if (WRITE_LSE && lane % 4 == 0 && out_row + 8 * h < p.queries) {
        lse[static_cast<long long>(stored.head) * p.queries + out_row + 8 * h] =
            (rows.m[h] + log2f(rows.l[h])) * 0.693147180559945f;
      }
    }
    uint16_t* target = attention::place_of(static_cast<uint16_t*>(out), p.out, out_batch, out_head, out_row);
    store_rows<C>(target, p.out.row, o, inverse, out_row, p.queries, lane);
    if (!C::kPersistent) break;
  }
}

}  // namespace warpgroups
