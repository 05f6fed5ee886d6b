// Kernels for short rows: several blocks per SM, each with one computing warpgroup.
#pragma once

#include <attention/warpgroups/in_step.cuh>
#include <attention/warpgroups/launch.cuh>

namespace warpgroups {

// kProducer  a second warpgroup requests tiles, and P·V overlaps the next softmax; otherwise all in step. With it a
//            block starts with few registers, so that more blocks fit.
// kBlocks    per SM: limited by registers at D = 64, by registers or shared memory at D = 128
template <int kHeadDim, bool kProducer, int kBlocks_, int kStages, int kKeys = 64>
struct Several : Config<kHeadDim, kKeys, 1, kStages, kProducer, false, kProducer, kProducer ? 2 : 0, false, 0, 1> {
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 65536 / kBlocks / 256 / 8 * 16 - kProducerRegisters;
};

template <typename C>
__device__ __forceinline__ void forward_of_several(const Problem& p, const CUtensorMap& q, const CUtensorMap& k,
                                                   const CUtensorMap& v, void* out) {
  if constexpr (C::kProducer) {
    forward<C>(p, q, k, v, out, nullptr, nullptr);
  } else {
    forward_in_step<C>(p, q, k, v, static_cast<uint16_t*>(out));
  }
}

}  // namespace warpgroups
