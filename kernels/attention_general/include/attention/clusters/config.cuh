// The sizes of a kernel for short sequences, and the constants derived from them.
#pragma once

#include <attention/hopper/wgmma.cuh>
#include <attention/strides.cuh>

namespace clusters {

using namespace hopper;
using attention::Strides;

// kDim        the head dimension, 64 or 128
// kRowGroups  row groups of 64 queries each, per block
// kKeyGroups  warpgroups per 64 queries: chunk c of a block's keys belongs to key group c % kKeyGroups
// kChunk      keys per warpgroup and step
// kStages     chunks per block: all of its keys are in shared memory at once
// kKeyParts   blocks per cluster, which share the keys of the same queries
// kOverlap    P·V of one chunk overlaps the softmax of the next
// kTurns      two row groups alternate on the tensor cores
template <int kDim_, int kRowGroups_, int kKeyGroups_, int kChunk_, int kStages_, int kKeyParts_, bool kOverlap_,
          bool kTurns_>
struct Config {
  static constexpr int kDim = kDim_;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kKeyGroups = kKeyGroups_;
  static constexpr int kChunk = kChunk_;
  static constexpr int kStages = kStages_;
  static constexpr int kKeyParts = kKeyParts_;
  static constexpr bool kOverlap = kOverlap_;
  static constexpr bool kTurns = kTurns_;

  static constexpr int kRows = kRowGroups * 64;
  static constexpr int kMostKeys = kKeyParts * kStages * kChunk;
  static constexpr int kGroups = kRowGroups * kKeyGroups;
  static constexpr int kWarps = kGroups * 4;
  static constexpr int kThreads = kGroups * 128;
  static constexpr int kPanels = kDim / kPanelColumns;
  static constexpr int kOutputs = kDim / 2;  // accumulators per thread
  static constexpr int kScores = kChunk / 2;

  // Merge: of kParts partial results, each finishes kShare accumulators per thread, and receives them as halves from
  // the others.
  static constexpr int kParts = kKeyGroups * kKeyParts;
  static constexpr int kShare = kOutputs / kParts;
  static constexpr int kStateBytes = 32 * 8;            // between warpgroups: m and l of 32 rows
  static constexpr int kShareBytes = kShare * 2 * 128;  // and the accumulators

  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kChunkBytes = kChunk * kDim * 2;
  static constexpr int kKeysAt = kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kChunkBytes;
  static constexpr int kStatesAt = kValuesAt + kStages * kChunkBytes;
  static constexpr int kSharesAt = kStatesAt + kGroups * (kParts - 1) * kStateBytes;
  static constexpr int kBarriersAt = kSharesAt + kGroups * (kParts - 1) * kShareBytes;
  static constexpr int kBarriers = 1 + 2 * kStages + kWarps;
  static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8;

  static_assert(ELEMENT_BF16 == 0, "partial results go from block to block as halves");
  static_assert(kDim == 64 || kDim == 128, "head dimension");
  static_assert(kChunk == 64 || kChunk == 128, "shapes that wgmma_shapes.cuh has");
  static_assert(!kTurns || (kOverlap && kRowGroups == 2 && kKeyGroups == 1), "turns of two warpgroups in step");
  static_assert(kKeyParts > 1, "st.async needs a cluster");
  static_assert(kStages >= kKeyGroups, "a chunk for each key group");
  static_assert(kShare % 8 == 0, "a share is whole vectors");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory");
};

constexpr float kMasked = -__builtin_huge_valf();  // the score of a masked key
constexpr float kLowest = -1e20f;  // the reference of weights if there is no key: all of them are 0
constexpr float kSlack = 8.0f;     // how far, in powers of two, a score may exceed the weights' reference

}  // namespace clusters
