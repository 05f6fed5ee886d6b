// The switches as constants, and what follows from them: threads, registers, shared memory.
#pragma once

#include <hopper/wgmma.cuh>

namespace attention_long {

using namespace hopper;

constexpr int kHeadDim = HEAD_DIM;
constexpr int kKeys = KEYS;
constexpr int kConsumers = CONSUMERS;
constexpr int kStages = STAGES;
constexpr bool kCausal = CAUSAL;
constexpr bool kWriteLse = WRITE_LSE;
constexpr int kProducerWarps = PRODUCER_WARPS;
constexpr int kOverlap = OVERLAP;
constexpr int kPingPong = PINGPONG;
constexpr int kPersistent = PERSISTENT;
constexpr int kLazy = LAZY;
constexpr bool kJoint = JOINT;
constexpr int kKeyGroups = KEY_GROUPS;
constexpr int kPolynomial = POLYNOMIAL;

constexpr int kRowsOfConsumer = 64;
constexpr int kRowGroups = kConsumers / kKeyGroups;
constexpr int kRows = kRowGroups * kRowsOfConsumer;
// Rows past the end cost nothing: a warpgroup that has only such goes without. Three to a tile often have them.
constexpr bool kMayIdle = kRowGroups == 3;
constexpr int kThreads = (kConsumers * 4 + kProducerWarps) * 32;
constexpr int kPanels = kHeadDim / kPanelColumns;
constexpr int kSteps = kHeadDim / 16;  // of Q·Kᵀ

// Registers of a thread: the file has 65,536, a block starts with the same for all threads, in eights.
constexpr int kAtStart = 65536 / kThreads / 8 * 8;
constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
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
constexpr int kPositionsAt = kBarriersAt + (4 * kStages + 2 * kRowGroups + 4) * 8;
constexpr int kSharedBytes = kPositionsAt + 8;
static_assert(kSharedBytes <= 227 * 1024, "too many stages");
static_assert(kConsumers % kKeyGroups == 0 && kStages % kKeyGroups == 0, "a key group has stages of its own");
static_assert(kProducerWarps > 0 || kKeyGroups == 1, "what copies of its own a consumer can do");
static_assert(kProducerWarps > 0 || !kOverlap || kStages > 2, "V of the tile before is still being read");
static_assert(kProducerWarps > 0 || !kPersistent, "what copies of its own a consumer can do");
static_assert(kPersistent < 2 || kProducerWarps > 0, "a producer takes tiles");
static_assert(kOverlap < 2 || (kLazy == 2 && kProducerWarps > 0), "what OVERLAP 2 is written for");
static_assert(kOverlap < 2 || kStages >= 3 * kKeyGroups, "three tiles are in use at a time");
static_assert(!kJoint || kProducerWarps > 0, "what copies of its own a consumer can do");
static_assert(kLazy < 2 || kOverlap, "where K still lies in shared memory when weights are checked");

// Accumulators of a thread.
constexpr int kScores = kKeys / 2;
constexpr int kOutputs = kHeadDim / 2;

// What a score may lie above the maximum that weights are relative to, in powers of two.
constexpr float kSlack = 8.0f;

// What a thread's weights of a row and tile may add up to before a new maximum is looked for: an element's largest
// value is 65,504.
constexpr float kLargestSum = 16384.0f;

}  // namespace attention_long
