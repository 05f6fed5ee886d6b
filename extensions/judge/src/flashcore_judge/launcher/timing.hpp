// How a call is timed: as measure/bench/timing.py does, with the same graphs, spacers, flushes and events.
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
constexpr double kSampleUs = 400.0, kLongCallUs = 1000.0, kResolutionUs = 1e-3;
constexpr int kMostCalls = 500, kWarmUps = 3, kMostSets = 4, kLongEvents = 3, kFewestEvents = 10, kEvents = 40;
constexpr int kSpacedIsolated = 40, kSpacedCold = 5;  // calls of a sample by difference
constexpr std::uint64_t kCover = 100000, kLongCover = 200000, kSpacer = 4000;  // clocks
enum class Regime { isolated, back_to_back, cold, eager };

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
  void record(int pair, int end) const { CUDA(cuEventRecordWithFlags, events_[pair][end], stream, kExternal); }
  void replay(Handle graph) const { CUDA(cuGraphLaunch, graph, stream); }
  double elapsed_us(int pair) const {
    float milliseconds = 0;
    CUDA(cuEventElapsedTime, &milliseconds, events_[pair][0], events_[pair][1]);
    return milliseconds * 1000.0;
  }
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
    CUDA(cuEventRecord, events_[kEvents][0], stream);
    work();
    CUDA(cuEventRecord, events_[kEvents][1], stream);
    CUDA(cuEventSynchronize, events_[kEvents][1]);
    return elapsed_us(kEvents);
  }

 private:
  std::string kernels_;
  Handle spin_ = nullptr, flush_ = nullptr, events_[kEvents + 1][2] = {};
  Address flushed_ = 0;
};

// A call to be timed; `enqueue(i)` does it on the tensors of number i.
struct Call {
  std::function<void(int)> enqueue;
  int count = 1;                                 // of numbers
  int most = kMostCalls, resident = kMostCalls;  // calls of a sample; those whose tensors lie in L2 together
  std::function<void(int)> restore = [](int) {};  // enqueues what a sample of so many calls needs before it, untimed
};

class Timed {
 public:
  int launches = 1, eager_calls = 1;

  Timed(const Machine& machine, Call call) : machine_(machine), driver(machine.driver), call_(std::move(call)) {
    const auto one = [this](int i) { call_.enqueue(i % call_.count); };
    for (int i = 0; i < std::max(kWarmUps, call_.count); ++i) one(i);
    machine_.wait();
    single_ = machine_.captured(1, one);
    each_set_ = call_.count == 1 ? single_ : machine_.captured(std::min(call_.count, kMostSets), one);
    const auto least = [](const std::function<double()>& time) { return std::min({time(), time(), time()}); };
    call_us_ = least([&] { return machine_.between(kCover, [&] { machine_.replay(single_); }); });
    launches = calls_for(call_us_);
    many_ = launches == 1 ? single_ : machine_.captured(launches, one);
    eager_calls = calls_for(least([&] { return sample(Regime::eager); }));
  }

  // us of a call by one sample.
  double sample(Regime regime) {
    if (regime == Regime::eager) {
      prepare(regime, eager_calls, false, true);
      const auto all = [&] { for (int i = 0; i < eager_calls; ++i) call_.enqueue(i % call_.count); };
      return machine_.between(0, all) / eager_calls;
    }
    if (regime == Regime::back_to_back) {
      prepare(regime, launches, true, true);
      return machine_.between(kCover, [&] { machine_.replay(many_); }) / launches;
    }
    const int count = spaced(regime, false);
    const Handle calls = graph(regime, true, false), spacers = graph(regime, false, false);
    prepare(regime, count, true, true);
    const double both = machine_.between(kLongCover, [&] { machine_.replay(calls); });
    return std::max((both - machine_.between(kLongCover, [&] { machine_.replay(spacers); })) / count, kResolutionUs);
  }
  // us between events around each of some calls, or around nothing.
  std::vector<double> each(Regime regime, bool calls, bool first) {
    const int count = spaced(regime, true);
    const Handle all = graph(regime, calls, true);
    prepare(regime, count, first || regime == Regime::cold, calls);
    machine_.between(kLongCover, [&] { machine_.replay(all); });
    std::vector<double> times;
    for (int i = 0; i < count; ++i) times.push_back(machine_.elapsed_us(i));
    return times;
  }

 private:
  int calls_for(double us) const {
    return std::clamp(static_cast<int>(std::nearbyint(kSampleUs / std::max(us, 0.1))), 1, call_.most);
  }
  int spaced(Regime regime, bool events) const {
    const int most = regime == Regime::cold ? kSpacedCold : kSpacedIsolated;
    const int fewest = call_us_ < kLongCallUs ? kFewestEvents : kLongEvents;
    const int wanted = events ? std::min(kEvents, std::max(fewest, launches)) : std::min(most, launches);
    return std::min(wanted, regime == Regime::cold ? call_.most : call_.resident);
  }
  void prepare(Regime regime, int count, bool l2, bool calls) {
    if (l2 && regime == Regime::cold) CUDA(cuCtxResetPersistingL2Cache);
    if (l2 && regime != Regime::cold && call_us_ < kLongCallUs) machine_.replay(count > 1 ? each_set_ : single_);
    if (calls) call_.restore(count);
  }
  Handle graph(Regime regime, bool calls, bool events) {
    Handle& made = graphs_[{regime, calls, events}];
    if (made == nullptr) {
      made = machine_.captured(spaced(regime, events), [&](int i) {
        if (regime == Regime::cold) machine_.flush(static_cast<std::uint64_t>(i) + 2);
        machine_.spin(kSpacer, static_cast<unsigned>(machine_.sms));
        if (events) machine_.record(i, 0);
        if (calls) call_.enqueue(i % call_.count);
        if (events) machine_.record(i, 1);
      });
    }
    return made;
  }

  const Machine& machine_;
  const Driver& driver;
  Call call_;
  double call_us_ = 0;
  Handle single_ = nullptr, each_set_ = nullptr, many_ = nullptr;
  std::map<std::tuple<Regime, bool, bool>, Handle> graphs_;
};

}  // namespace flashcore
