// The host side of a variant that is one kernel.
#pragma once

#include <attention/head.cuh>
#include <attention/softmax.cuh>

namespace attention {

// One launch whose blocks take `rows` query rows each, or the reason why the shape is refused.
inline flashcore::Plan plan_forward(const flashcore::Shape& s, const char* kernel, int rows, int threads,
                                    int shared_bytes) {
  flashcore::Plan p;
  if ((p.error = refusal(s))) return p;
  return p.add({kernel, query_grid(s, rows), dim3(threads), dim3(1), static_cast<unsigned>(shared_bytes)});
}

// plan and launch of a kernel with the parameters (q, k, v, out, seq, scale · log2 e), for
// FLASHCORE_VARIANT(forward.plan, forward.launch).
struct Forward {
  void (*kernel)(const half*, const half*, const half*, half*, int, float);
  const char* name;
  int rows;  // query rows per block
  int threads;
  int shared_bytes = 0;  // dynamic

  flashcore::Plan plan(const flashcore::Shape& s) const { return plan_forward(s, name, rows, threads, shared_bytes); }

  cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                     cudaStream_t stream) const {
    return flashcore::run(p.launches[0], kernel, stream, a.q, a.k, a.v, a.out, s.S, exp2_scale(a.scale));
  }
};

}  // namespace attention
