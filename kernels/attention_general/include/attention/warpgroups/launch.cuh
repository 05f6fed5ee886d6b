// The host side: refused shapes, tensor descriptions, launches.
#pragma once

#include <attention/hopper/tensor_map.cuh>
#include <attention/softmax.cuh>
#include <attention/warpgroups/forward.cuh>
#include <flashcore/problem.h>

#include <algorithm>

#ifndef MULTIPROCESSORS
#define MULTIPROCESSORS 132  // of an H100 or H200; other numbers cost time, not correctness
#endif

namespace warpgroups {

// The reason why a shape is not supported, or nullptr.
inline const char* refusal(const flashcore::Shape& s) {
  if (s.D != 64 && s.D != 128) return "expected head dimension D = 64 or 128; this variant is compiled for them alone";
  if (s.S < 1 || s.S > (1 << 24)) return "expected a sequence length S from 1 to 16,777,216";
  if (s.HKV < 1 || s.H % s.HKV != 0) return "expected query heads H in whole groups for each of the HKV key heads";
  if (s.B < 1 || s.B * s.H > 65535) return "expected 1 to 65,535 (batch, head) pairs";
  if (s.B * s.H * ((s.S + 63) / 64) > (1 << 30)) return "expected at most 2^30 tiles of 64 query rows";
  return nullptr;
}

template <typename C>
Order order_of(const flashcore::Shape& s, bool causal) {
  const int row_tiles = static_cast<int>((s.S + C::kRows - 1) / C::kRows);
  const int heads = static_cast<int>(s.B * s.H);
  // Heads whose K and V take at most 24 MB; query heads that share them stay together. If all rows see all keys, one
  // head after the other is as fast.
  const std::int64_t each = 4 * s.S * s.D * s.HKV / s.H;
  const int group = causal ? static_cast<int>(std::min<std::int64_t>(heads, std::max<std::int64_t>(1, (24 << 20) / each))) : 1;
  return {row_tiles, heads, group, row_tiles * heads};
}

// Adds the launches of one forward pass: if blocks take tiles from a counter, since there are more tiles than blocks, a
// kernel that clears it comes first.
template <typename C>
flashcore::Plan& add_forward(flashcore::Plan& p, const flashcore::Shape& s, const char* kernel, const char* clear) {
  const int positions = order_of<C>(s, false).positions;
  if (C::kPersistent == 2 && positions > MULTIPROCESSORS) {
    p.add({clear, dim3(1), dim3(32), dim3(1), 0});
    p.workspace_bytes = sizeof(unsigned);
  }
  const int blocks = C::kPersistent ? std::min(positions, MULTIPROCESSORS) : positions;
  return p.add({kernel, dim3(blocks), dim3(C::kThreads), dim3(1), C::kSharedBytes});
}

using Kernel = void (*)(CUtensorMap, CUtensorMap, CUtensorMap, void*, float*, unsigned*, Problem);

template <typename C>
cudaError_t launch_forward(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                           Kernel kernel, void (*clear)(unsigned*), float* lse, void* workspace, cudaStream_t stream) {
  if (!(a.scale > 0)) return cudaErrorInvalidValue;  // the maximum is taken before scores are scaled
  const bool causal = a.causal != 0;
  const int rows = static_cast<int>(s.S);
  const Problem problem = {order_of<C>(s, causal),
                           static_cast<int>(s.H),
                           static_cast<int>(s.H / s.HKV),
                           rows,
                           rows,
                           causal ? 1 : rows,
                           attention::exp2_scale(a.scale),
                           attention::strides_of(a.out_strides)};
  CUtensorMap q, k, v;
  for (const cudaError_t error : {describe(q, a.q, a.q_strides, s.B, s.H, s.S, s.D, C::kRowsOfConsumer),
                                  describe(k, a.k, a.k_strides, s.B, s.HKV, s.S, s.D, C::kKeys),
                                  describe(v, a.v, a.v_strides, s.B, s.HKV, s.S, s.D, C::kKeys)}) {
    if (error != cudaSuccess) return error;
  }
  unsigned* taken = static_cast<unsigned*>(workspace);
  if (p.count > 1) {
    const cudaError_t error = flashcore::run(p.launches[0], clear, stream, taken);
    if (error != cudaSuccess) return error;
  }
  return flashcore::run(p.launches[p.count - 1], kernel, stream, q, k, v, a.out, lse, taken, problem);
}

}  // namespace warpgroups
