#include <flashcore/problem.h>
#include <flashcore/launcher.h>

#include "library.cuh"

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Launch l;
  l.kernel = flashcore::kernel_name<lib::scale<256, true>>();
  l.grid = flashcore::ceil_div(s.N, 256);
  l.block = 256;
  return flashcore::Plan().add(l);
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], lib::scale<256, true>, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), a.factor, s.N);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
