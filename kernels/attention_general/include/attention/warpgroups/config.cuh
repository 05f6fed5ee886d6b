// A kernel's switches as constants, and the values derived from them: threads, registers, shared memory.
#pragma once

#ifndef WRITE_LSE
#define WRITE_LSE 0  // also the natural logarithm of each row's sum of exponentials
#endif

#include <attention/hopper/wgmma.cuh>

namespace warpgroups {

using namespace hopper;

// kHeadDim    64 or 128
// kKeys       per tile
// kConsumers  computing warpgroups, with 64 query rows each
// kStages     tiles of keys in flight
// kProducer   a separate warpgroup requests tiles, and gives its registers to the computing ones (setmaxnreg); without
//             it all run in step, and one thread requests tiles
// kPingPong   warpgroups issue their products in turn, so that one's softmax overlaps another's products
// kOverlap    P·V of one tile overlaps the softmax of the next, within one warpgroup
// kLazy       how rarely a row's maximum is raised: 0 in every tile; 1 when it has grown by more than 2^8; 2 after the
//             first tile it is not even computed, unless a sum of weights shows that it has grown by much (the scores
//             are overwritten by then: a warp recomputes them on its own)
// kJoint      K and V of a tile share a barrier: half as many waits, but the first products wait for both
// kPersistent one block per SM processes many tiles of rows: 1 in a fixed order, 2 each takes the next free one
// kKeyGroups  this many warpgroups share 64 rows, each with every n-th tile of keys, and merge at the end: for grids
//             that would leave SMs idle
template <int kHeadDim_, int kKeys_, int kConsumers_, int kStages_, bool kProducer_, bool kPingPong_, bool kOverlap_,
          int kLazy_, bool kJoint_, int kPersistent_, int kKeyGroups_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kStages = kStages_;
  static constexpr bool kProducer = kProducer_;
  static constexpr bool kPingPong = kPingPong_;
  static constexpr bool kOverlap = kOverlap_;
  static constexpr int kLazy = kLazy_;
  static constexpr bool kJoint = kJoint_;
  static constexpr int kPersistent = kPersistent_;
  static constexpr int kKeyGroups = kKeyGroups_;

  static constexpr int kRowsOfConsumer = 64;
  static constexpr int kRowGroups = kConsumers / kKeyGroups;
  static constexpr int kRows = kRowGroups * kRowsOfConsumer;
  // Rows past the end cost nothing: a warpgroup with only such rows has no work, which is common with three per tile.
  static constexpr bool kMayIdle = kRowGroups == 3;
  static constexpr int kThreads = (kConsumers + (kProducer ? 1 : 0)) * 128;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr int kSteps = kHeadDim / 16;  // of Q·Kᵀ

  // Registers per thread: the file has 65,536; a block starts with the same number for all threads, a multiple of 8.
  static constexpr int kAtStart = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters =
      (kAtStart * kThreads - kProducerRegisters * 128) / (kConsumers * 128) / 8 * 8;

  // Shared memory, in bytes.
  static constexpr int kQPanelBytes = kRowsOfConsumer * kPanelRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;  // per row group
  static constexpr int kPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kKeysAt = kRowGroups * kQBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kPartBytes = 128 * (kHeadDim / 2 + 4) * 4;  // passed by a consumer to merge: O, m, l
  static constexpr int kPartsAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kBarriersAt = kPartsAt + (kKeyGroups - 1) * kRowGroups * kPartBytes;
  static constexpr int kPositionsAt = kBarriersAt + (4 * kStages + 2 * kRowGroups + 4) * 8;
  static constexpr int kSharedBytes = kPositionsAt + 8;

  // Accumulators per thread.
  static constexpr int kScores = kKeys / 2;
  static constexpr int kOutputs = kHeadDim / 2;

  static_assert(kHeadDim == 64 || kHeadDim == 128, "head dimension: 64 or 128");
  static_assert(kKeys == 64 || kKeys == 128, "keys of a tile: shapes that wgmma_shapes.cuh has");
  static_assert(kConsumers >= 1 && kConsumers <= 4, "1 to 4 consumers: registers");
  static_assert(kSharedBytes <= 227 * 1024, "too many stages");
  static_assert(kConsumers % kKeyGroups == 0 && kStages % kKeyGroups == 0, "a key group has stages of its own");
  static_assert(kLazy < 2 || kOverlap, "where K still lies in shared memory when weights are checked");
};

// How far, in powers of two, a score may exceed the maximum to which weights are relative.
constexpr float kSlack = 8.0f;

// The limit of a thread's sum of weights per row and tile before a new maximum is computed: an element's largest value
// is 65,504.
constexpr float kLargestSum = 16384.0f;

}  // namespace warpgroups
