// The host side of the kernels that run on any arch.
#pragma once

#ifndef WRITE_LSE
#define WRITE_LSE 0
#endif

#include <attention/softmax.cuh>
#include <attention/stripes/forward.cuh>
#include <flashcore/problem.h>

namespace stripes {

// The reason why a shape is not supported, or nullptr.
inline const char* refusal(const flashcore::Shape& s) {
  if (s.D != 64 && s.D != 128) return "expected head dimension D = 64 or 128; this variant is compiled for them alone";
  if (s.S < 1 || s.S > (1 << 24)) return "expected a sequence length S from 1 to 16,777,216";
  if (s.HKV < 1 || s.H % s.HKV != 0) return "expected query heads H in whole groups for each of the HKV key heads";
  if (s.B < 1 || s.B > 65535 || s.H > 65535) return "expected 1 to 65,535 batches, and as many heads";
  return nullptr;
}

template <typename C>
flashcore::Plan& add_forward(flashcore::Plan& p, const flashcore::Shape& s, const char* kernel) {
  return p.add({kernel, dim3(flashcore::ceil_div(s.S, C::kRows), static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)),
                dim3(C::kThreads), dim3(1), C::kSharedBytes});
}

using Kernel = void (*)(Problem, const uint16_t*, const uint16_t*, const uint16_t*, uint16_t*, float*);

inline cudaError_t launch_forward(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                                  Kernel kernel, float* lse, cudaStream_t stream) {
  if (!(a.scale > 0)) return cudaErrorInvalidValue;  // the maximum is taken before scores are scaled
  const int rows = static_cast<int>(s.S);
  using attention::strides_of;
  const Problem problem = {strides_of(a.q_strides),
                           strides_of(a.k_strides),
                           strides_of(a.v_strides),
                           strides_of(a.out_strides),
                           rows,
                           rows,
                           a.causal != 0 ? 1 : rows,
                           static_cast<int>(s.H / s.HKV),
                           attention::exp2_scale(a.scale)};
  const auto elements = [](const void* tensor) { return static_cast<const uint16_t*>(tensor); };
  return flashcore::run(p.launches[0], kernel, stream, problem, elements(a.q), elements(a.k), elements(a.v),
                        static_cast<uint16_t*>(a.out), lse);
}

}  // namespace stripes
