// The GPU, and what times work on it: the spacers, flushes and events of stages/bench/timing.py.
#pragma once

#include <algorithm>
#include <functional>

#include "plan.hpp"

namespace flashcore {

// A kernel whose threads spin so many clocks, and one whose threads store 16 bytes each.
constexpr char kKernels[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 clocks, .param .u64 unused) {
  .reg .b64 %limit, %start, %now; .reg .pred %again;
  ld.param.u64 %limit, [clocks]; mov.u64 %start, %clock64;
loop:
  mov.u64 %now, %clock64; sub.u64 %now, %now, %start; setp.lt.u64 %again, %now, %limit;
  @%again bra loop;
  ret;
}
.visible .entry flush(.param .u64 memory, .param .u64 value) {
  .reg .b64 %at, %offset; .reg .b32 %block, %size, %thread, %value;
  ld.param.u64 %at, [memory]; cvta.to.global.u64 %at, %at; ld.param.u32 %value, [value];
  mov.u32 %block, %ctaid.x; mov.u32 %size, %ntid.x; mov.u32 %thread, %tid.x;
  mad.lo.s32 %block, %block, %size, %thread; mul.wide.u32 %offset, %block, 16; add.s64 %at, %at, %offset;
  st.global.v4.u32 [%at], {%value, %value, %value, %value};
  ret;
})";
constexpr std::uint64_t kCover = 100000;  // clocks

// The first visible GPU, a stream of ours on it, and the kernels of the timing.
class Machine {
 public:
  const Driver driver;
  Handle stream = nullptr;
  int sms = 0, l2_bytes = 0;

  Machine() {
    int device = 0;
    try {
      CUDA(cuInit, 0);
      CUDA(cuDeviceGet, &device, 0);
    } catch (const CudaError& error) {
      throw Incapable(std::string("expected a GPU: ") + error.what() + ": " + error.name);
    }
    Handle context = nullptr;
    CUDA(cuDevicePrimaryCtxRetain, &context, device);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuStreamCreate, &stream, kNonBlocking);
    sms = attribute(kSms);
    l2_bytes = attribute(kL2Bytes);
    CUDA(cuMemAlloc, &flushed_, 2 * static_cast<Size>(l2_bytes));
    for (auto& pair : events_) {
      for (Handle& event : pair) CUDA(cuEventCreate, &event, 0);
    }
    load_kernels();
  }

  // PTX as this GPU's code, which is loaded again in less time; PTX if the driver cannot.
  std::string translated(const char* ptx) const {
    Handle state = nullptr;
    void* image = nullptr;
    Size bytes = 0;
    std::string made(ptx, std::strlen(ptx) + 1);
    if (driver.cuLinkCreate(0, nullptr, nullptr, &state) != 0) return made;
    const bool works = driver.cuLinkAddData(state, kPtx, made.data(), made.size(), "ours", 0, nullptr, nullptr) == 0 &&
                       driver.cuLinkComplete(state, &image, &bytes) == 0;
    if (works) made.assign(static_cast<char*>(image), bytes);
    driver.cuLinkDestroy(state);
    return made;
  }
  // Loads the kernels, anew if there are some, and runs them, which cannot be done for the first time while capturing.
  void load_kernels() {
    Handle module = nullptr;
    if (kernels_.empty()) kernels_ = translated(kKernels);
    CUDA(cuModuleLoadData, &module, kernels_.data());
    CUDA(cuModuleGetFunction, &spin_, module, "spin");
    CUDA(cuModuleGetFunction, &flush_, module, "flush");
    spin(0);
    flush(1);
    wait();
  }
  int attribute(int which) const {
    int value = 0;
    CUDA(cuDeviceGetAttribute, &value, which, 0);
    return value;
  }
  void wait() const { CUDA(cuStreamSynchronize, stream); }
  // Launches a kernel of at most three numbers.
  void run(Handle kernel, unsigned blocks, unsigned threads, std::uint64_t a, std::uint64_t b, std::uint64_t c = 0, unsigned shared = 0) const {
    void* arguments[] = {&a, &b, &c};
    const LaunchConfig config{{blocks, 1, 1}, {threads, 1, 1}, shared, stream, nullptr, 0};
    CUDA(cuLaunchKernelEx, &config, kernel, arguments, nullptr);
  }
  void spin(std::uint64_t clocks, unsigned blocks = 1) const { run(spin_, blocks, 32, clocks, 0); }
  void flush(std::uint64_t value) const { run(flush_, static_cast<unsigned>(l2_bytes) / 2048, 256, flushed_, value); }
  // Records an end of the pair of events of a graph.
  void record(int end) const { CUDA(cuEventRecordWithFlags, events_[1][end], stream, kExternal); }
  // us between the events of the last graph.
  double elapsed_us() const { return elapsed_us(events_[1]); }
  void replay(Handle graph) const { CUDA(cuGraphLaunch, graph, stream); }
  // A graph of what `enqueue` does with each of `count` numbers; replayed once, which uploads it, or only uploaded.
  Handle captured(int count, const std::function<void(int)>& enqueue, bool is_replayed = true) const {
    Handle graph = nullptr, made = nullptr;
    CUDA(cuStreamBeginCapture, stream, kRelaxedCapture);
    for (int i = 0; i < count; ++i) enqueue(i);
    CUDA(cuStreamEndCapture, stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, &made, graph, 0);
    CUDA(cuGraphDestroy, graph);
    if (is_replayed) replay(made);
    else CUDA(cuGraphUpload, made, stream);
    return made;
  }
  // Device time (us) of the work that `work` enqueues, while a spin covers the host's time.
  double between(std::uint64_t cover, const std::function<void()>& work) const {
    if (cover > 0) spin(cover);
    CUDA(cuEventRecord, events_[0][0], stream);
    work();
    CUDA(cuEventRecord, events_[0][1], stream);
    CUDA(cuEventSynchronize, events_[0][1]);
    return elapsed_us(events_[0]);
  }

 private:
  double elapsed_us(const Handle (&pair)[2]) const {
    float milliseconds = 0;
    CUDA(cuEventElapsedTime, &milliseconds, pair[0], pair[1]);
    return milliseconds * 1000.0;
  }

  std::string kernels_;
  Handle spin_ = nullptr, flush_ = nullptr, events_[2][2] = {};
  Address flushed_ = 0;
};

}  // namespace flashcore
