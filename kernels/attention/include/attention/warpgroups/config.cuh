// A kernel's switches as constants, and what follows from them: threads, registers, shared memory.
#pragma once

#ifndef WRITE_LSE
#define WRITE_LSE 0  // also the natural logarithm of each row's sum of exponentials
#endif

#include <attention/hopper/wgmma.cuh>

namespace warpgroups {

using namespace hopper;

// kHeadDim    64 or 128
// kKeys       of a tile
// kConsumers  warpgroups that compute, with 64 query rows each
// kStages     tiles of keys under way
// kProducer   a warpgroup of its own asks for tiles, and gives its registers to those that compute (setmaxnreg);
//             without it all go in step, and one thread asks
// kPingPong   warpgroups issue their products in turn, so that one's softmax lies beside another's products
// kOverlap    P·V of one tile beside the softmax of the next, in one warpgroup
// kLazy       how seldom a row's maximum is raised: 0 in every tile; 1 when it has grown by more than 2^8; 2 after
//             the first tile it is not even looked for, unless a sum of weights says that it has grown by much (the
//             scores are gone by then: a warp computes them again on its own)
// kJoint      K and V of a tile share a barrier: half as many waits, but the first products wait for both
// kPersistent a block an SM goes through many tiles of rows: 1 in an order fixed before, 2 each takes the next one left
// kKeyGroups  so many warpgroups share 64 rows, each with every so many-th tile of keys, and merge at the end: for
//             grids that would leave multiprocessors without work
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
  // Rows past the end cost nothing: a warpgroup that has only such goes without. Three to a tile often have them.
  static constexpr bool kMayIdle = kRowGroups == 3;
  static constexpr int kThreads = (kConsumers + (kProducer ? 1 : 0)) * 128;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr int kSteps = kHeadDim / 16;  // of Q·Kᵀ

  // Registers of a thread: the file has 65,536, a block starts with the same for all threads, in eights.
  static constexpr int kAtStart = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters =
      (kAtStart * kThreads - kProducerRegisters * 128) / (kConsumers * 128) / 8 * 8;

  // Shared memory, in bytes.
  static constexpr int kQPanelBytes = kRowsOfConsumer * kPanelRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;  // of a row group
  static constexpr int kPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kKeysAt = kRowGroups * kQBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kPartBytes = 128 * (kHeadDim / 2 + 4) * 4;  // what a consumer hands over to merge: O, m, l
  static constexpr int kPartsAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kBarriersAt = kPartsAt + (kKeyGroups - 1) * kRowGroups * kPartBytes;
  static constexpr int kPositionsAt = kBarriersAt + (4 * kStages + 2 * kRowGroups + 4) * 8;
  static constexpr int kSharedBytes = kPositionsAt + 8;

  // Accumulators of a thread.
  static constexpr int kScores = kKeys / 2;
  static constexpr int kOutputs = kHeadDim / 2;

  static_assert(kHeadDim == 64 || kHeadDim == 128, "head dimension: 64 or 128");
  static_assert(kKeys == 64 || kKeys == 128, "keys of a tile: shapes that wgmma_shapes.cuh has");
  static_assert(kConsumers >= 2 && kConsumers <= 4, "2 to 4 consumers: registers");
  static_assert(kSharedBytes <= 227 * 1024, "too many stages");
  static_assert(kConsumers % kKeyGroups == 0 && kStages % kKeyGroups == 0, "a key group has stages of its own");
  static_assert(kLazy < 2 || kOverlap, "where K still lies in shared memory when weights are checked");
};

// What a score may lie above the maximum that weights are relative to, in powers of two.
constexpr float kSlack = 8.0f;

// What a thread's weights of a row and tile may add up to before a new maximum is looked for: an element's largest
// value is 65,504.
constexpr float kLargestSum = 16384.0f;

}  // namespace warpgroups
