// The host side of the kernels for short sequences.
#pragma once

#include <attention/clusters/forward.cuh>
#include <attention/hopper/tensor_map.cuh>
#include <attention/softmax.cuh>
#include <flashcore/problem.h>

namespace clusters {

// The reason why a shape is not supported, or nullptr.
template <typename C>
const char* refusal(const flashcore::Shape& s) {
  if (s.D != C::kDim) return "expected the head dimension that this variant is compiled for";
  if (s.S < 1 || s.S > C::kMostKeys) return "expected no more keys than a cluster's shared memory holds";
  if (s.HKV < 1 || s.H % s.HKV != 0) return "expected query heads H in whole groups for each of the HKV key heads";
  if (s.B < 1 || s.B > 65535 || s.H > 65535) return "expected 1 to 65,535 batches, and as many heads";
  return nullptr;
}

template <typename C>
flashcore::Plan& add_forward(flashcore::Plan& p, const flashcore::Shape& s, const char* kernel) {
  const unsigned tiles = flashcore::ceil_div(s.S, C::kRows);
  return p.add({kernel, dim3(tiles * C::kKeyParts, static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)), dim3(C::kThreads),
                dim3(C::kKeyParts), C::kSharedBytes});
}

using Kernel = void (*)(CUtensorMap, CUtensorMap, CUtensorMap, half*, Strides, int, int, int, float);

template <typename C>
cudaError_t launch_forward(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                           Kernel kernel, cudaStream_t stream) {
  if (!(a.scale > 0)) return cudaErrorInvalidValue;  // the maximum is taken before scores are scaled
  CUtensorMap q, k, v;
  for (const cudaError_t error : {hopper::describe(q, a.q, a.q_strides, s.B, s.H, s.S, s.D, C::kRows),
                                  hopper::describe(k, a.k, a.k_strides, s.B, s.HKV, s.S, s.D, C::kChunk),
                                  hopper::describe(v, a.v, a.v_strides, s.B, s.HKV, s.S, s.D, C::kChunk)}) {
    if (error != cudaSuccess) return error;
  }
  return flashcore::run(p.launches[p.count - 1], kernel, stream, q, k, v, a.out, attention::strides_of(a.out_strides), s.S, a.causal != 0 ? 1 : s.S,
                        s.H / s.HKV, attention::exp2_scale(a.scale));
}

}  // namespace clusters
