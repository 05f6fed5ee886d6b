// out = factor · x with one planted fault, which FAULT names.
#include <flashcore/problem.h>

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

enum Fault {
  FAULT_good,
  FAULT_does_not_compile,
  FAULT_no_variant,
  FAULT_plan_refuses,
  FAULT_plan_null,
  FAULT_plan_abort,
  FAULT_plan_hangs,
  FAULT_plan_prints,
  FAULT_illegal_address,
  FAULT_too_much_smem,
  FAULT_endless_loop,
  FAULT_gives_nan,
  FAULT_gives_wrong,
  FAULT_writes_beyond,
  FAULT_plan_answers,
  FAULT_plan_shares,
  FAULT_plan_shares_too
};
constexpr Fault kFault = FAULT;

// As in a header of several variants: one for all libraries of a process, unless each keeps its symbols to itself.
inline unsigned& shared() {
  static unsigned value = 1024 * kFault;
  return value;
}
static_assert(kFault != FAULT_does_not_compile, "this fault does not compile");

extern "C" __global__ void fault_kernel(const float* x, float* out, float factor, long long count) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i == 0) {
    volatile float* forever = out;
    if (kFault == FAULT_illegal_address) *reinterpret_cast<volatile float*>(0x10) = 1.0f;
    if (kFault == FAULT_endless_loop) while (forever[0] != 1234567.0f) {}
    if (kFault == FAULT_writes_beyond) out[count] = 0.0f;
  }
  if (i >= count) return;
  out[i] = x[i] * factor;
  if (kFault == FAULT_gives_nan && i == count / 2) out[i] = nanf("");
  if (kFault == FAULT_gives_wrong && i == count - 1) out[i] += 0.01f;
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (kFault == FAULT_plan_refuses && s.N > 2000) p.error = "at most 2000 elements";
  if (kFault == FAULT_plan_null) *reinterpret_cast<volatile int*>(8) = 1;
  if (kFault == FAULT_plan_abort) std::abort();
  if (kFault == FAULT_plan_hangs) for (;;) pause();
  if (kFault == FAULT_plan_prints) std::printf("a plan under development\n");
  if (kFault == FAULT_plan_answers) {  // for another variant, wherever an answer may go
    const char answer[] = "{\"cause\": null, \"workspace\": 0, \"launches\": []}\n";
    for (int file = 1; file < 64; ++file) (void)!write(file, answer, sizeof answer - 1);
    _exit(0);
  }
  unsigned smem = kFault == FAULT_too_much_smem ? 1u << 20 : 0;
  if (kFault == FAULT_plan_shares || kFault == FAULT_plan_shares_too) smem = shared();
  return p.add({.kernel = "fault_kernel",
                .grid = dim3(flashcore::ceil_div(s.N, 256)),
                .block = dim3(256),
                .dynamic_smem = smem});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], fault_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), s.N);
}

// A macro cannot ask an enumerator, so this fault is known by its variant's name.
#define NAMED_no_variant 1
#define JOINED_(name) NAMED_##name
#define JOINED(name) JOINED_(name)
#if !JOINED(FLASHCORE_NAME)
FLASHCORE_VARIANT(plan, launch)
#endif
