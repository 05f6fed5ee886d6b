// Runs a plan on the first visible GPU: loads cubins, fills tensors, launches, times, copies out. It needs the CUDA
// driver and nothing else. docs/reference/launcher.md describes plans, commands, events and exit codes.
//
//   launcher PLAN           reads a command from each line of standard input, writes events to standard output
//   launcher --check PLAN   checks the plan; needs no driver
#include <memory>

#include "launch.hpp"

namespace flashcore {
namespace {

// The bits of element i of a set: the sum of three bytes of splitmix64, scaled to a standard deviation of 1. It is a
// multiple of 1/64 below 3, which bfloat16, float16 and float32 hold exactly.
std::uint32_t drawn(std::uint64_t seed, std::uint64_t set, std::uint64_t i, const std::string& dtype) {
  std::uint64_t x = seed + (set << 56) + (i + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  const int sum = static_cast<int>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255));
  const float value = static_cast<float>(sum / 2 - 191) / 64;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype != "float16") return dtype == "bfloat16" ? bits >> 16 : bits;
  constexpr std::uint32_t kBiases = (127 - 15) << 23;  // of float32 and float16
  return (bits >> 16 & 0x8000) | (value == 0 ? 0 : ((bits & 0x7FFFFFFF) - kBiases) >> 13);
}

// The tensors on the GPU: as many sets as stay in L2 together, as in bench; of one that is input and output, a copy for
// each call of a sample; of a workspace one.
class Memory {
 public:
  int sets = 1, copies = 0, resident = kMostCalls;

  Memory(const Machine& machine, const Plan& plan) : driver(machine.driver), machine_(machine), plan_(plan) {
    std::int64_t once = 0, restored = 0;
    for (const Tensor& one : plan.tensors) {
      if (one.role != Tensor::workspace) once += static_cast<std::int64_t>(one.bytes);
      if (one.role == Tensor::inout) restored += static_cast<std::int64_t>(one.bytes);
    }
    const std::int64_t half = machine.l2_bytes / 2;
    sets = static_cast<int>(std::clamp<std::int64_t>(half / std::max<std::int64_t>(once + restored, 1), 1, kMostSets));
    if (restored > 0) {
      copies = static_cast<int>(std::clamp<std::int64_t>((1 << 28) / restored, sets, 100));
      const std::int64_t fit = (half - once * sets) / restored;
      resident = fit < 1 ? copies : static_cast<int>(std::min<std::int64_t>(copies, fit));
    }
    for (const Tensor& one : plan.tensors) {
      initial_.push_back(allocated(one.bytes, one.role == Tensor::workspace ? 1 : sets));
      addresses_.push_back(one.role == Tensor::inout ? allocated(one.bytes, copies) : initial_.back());
      const std::vector<std::string> paths = one.paths.empty() ? std::vector<std::string>{""} : one.paths;
      for (std::size_t i = 0; i < initial_.back().size(); ++i) fill(initial_.size() - 1, i, paths[i % paths.size()]);
    }
  }

  int calls() const { return std::max(sets, copies); }
  std::vector<Address> of_call(int i) const {
    std::vector<Address> made;
    for (const auto& each : addresses_) made.push_back(each[static_cast<std::size_t>(i) % each.size()]);
    return made;
  }
  // Enqueues copies of the initial content of tensors that are input and output, for each of the first calls.
  void restore(int calls) const {
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
      for (std::size_t i = 0; plan_.tensors[t].role == Tensor::inout && i < static_cast<std::size_t>(calls); ++i) {
        const Address from = initial_[t][i % initial_[t].size()];
        CUDA(cuMemcpyDtoDAsync, addresses_[t][i], from, plan_.tensors[t].bytes, machine_.stream);
      }
    }
  }
  // Fills a set's tensor from a file; without one, as the plan says.
  void fill(std::size_t tensor, std::size_t set, const std::string& path) const {
    const Tensor& one = plan_.tensors[tensor];
    std::string bytes(path.empty() ? one.bytes : 0, static_cast<char>(one.byte));
    if (!path.empty()) bytes = contents(path, one.bytes);
    if (bytes.size() != one.bytes) throw Refused(path + ": expected " + std::to_string(one.bytes) + " bytes");
    const std::size_t size = one.dtype == "float32" ? 4 : 2;
    for (std::size_t i = 0; path.empty() && one.seed >= 0 && i < bytes.size() / size; ++i) {
      const std::uint32_t bits = drawn(static_cast<std::uint64_t>(one.seed), set, i, one.dtype);
      std::memcpy(bytes.data() + i * size, &bits, size);  // little-endian
    }
    CUDA(cuMemcpyHtoD, initial_[tensor][set], bytes.data(), bytes.size());
    CUDA(cuStreamSynchronize, nullptr);  // the copy may still be under way, and our stream does not wait for it
  }
  // Writes a tensor's content after a call to a file.
  void save(std::size_t tensor, int call, const std::string& path) const {
    std::string bytes(plan_.tensors[tensor].bytes, '\0');
    CUDA(cuMemcpyDtoH, bytes.data(), of_call(call)[tensor], bytes.size());
    if (!(std::ofstream(path, std::ios::binary) << bytes << std::flush)) throw Refused(path + ": expected room for it");
  }

 private:
  std::vector<Address> allocated(std::uint64_t bytes, int count) const {
    std::vector<Address> made(static_cast<std::size_t>(count));
    for (Address& at : made) CUDA(cuMemAlloc, &at, bytes);
    return made;
  }

  const Driver& driver;
  const Machine& machine_;
  const Plan& plan_;
  std::vector<std::vector<Address>> addresses_, initial_;  // of each tensor: of calls, of sets
};

class Session {
 public:
  explicit Session(Plan& plan) : driver(machine_.driver), plan_(plan) {
    say_device(machine_, member("sms", machine_.sms) + member("l2_bytes", machine_.l2_bytes));
    load(driver, plan);
    memory_ = std::make_unique<Memory>(machine_, plan);
    say("loaded", member("sets", memory_->sets) + member("calls", memory_->calls()));
  }

  // Carries out a command, and says so. Throws Refused.
  void command(const std::string& line) {
    Words words(line, plan_.folder);
    const int which = words.one_of({"call", "read", "write", "sample", "empty", "each"});
    if (which == 0) {
      const int number = call(words);
      memory_->restore(memory_->copies);
      launch(driver, plan_, memory_->of_call(number), machine_.stream);
      machine_.wait();
      say("called");
    } else if (which == 1 || which == 2) {
      const std::string name = words.name();
      const std::size_t tensor = plan_.index(name);
      if (tensor == plan_.tensors.size()) words.refuse("a tensor of the plan");
      const bool is_once = plan_.tensors[tensor].role == Tensor::workspace;
      const std::string path = words.file();
      if (which == 1) {
        memory_->save(tensor, call(words), path);
      } else {
        memory_->fill(tensor, words.small(0, is_once ? 0 : static_cast<unsigned>(memory_->sets) - 1), path);
      }
      say(which == 1 ? "read" : "written", member("tensor", name));
    } else if (which == 5) {
      const Regime regime = words.one_of({"isolated", "cold"}) == 0 ? Regime::isolated : Regime::cold;
      const bool calls = words.one_of({"nothing", "calls"}) == 1, first = words.one_of({"again", "first"}) == 1;
      say("timed", member("us", timed(false).each(regime, calls, first)));
    } else {
      const auto regime = static_cast<Regime>(words.one_of({"isolated", "back_to_back", "cold", "eager"}));
      Timed& one = timed(which == 4);
      const std::vector<double> us = {one.sample(regime)};
      say("sampled", member("launches", one.launches) + member("eager_calls", one.eager_calls) + member("us", us));
    }
  }

 private:
  int call(Words& words) const { return static_cast<int>(words.integer(0, memory_->calls() - 1)); }
  Timed& timed(bool is_empty) {
    if (is_empty && !empty_) empty_ = std::make_unique<Timed>(machine_, Call{[this](int) { machine_.spin(0); }});
    if (!is_empty && !timed_) {
      Call made{[this](int i) { launch(driver, plan_, memory_->of_call(i), machine_.stream); }, memory_->calls()};
      if (memory_->copies > 0) made.most = memory_->copies, made.resident = memory_->resident;
      made.restore = [this](int calls) { memory_->restore(calls); };
      timed_ = std::make_unique<Timed>(machine_, std::move(made));
    }
    return is_empty ? *empty_ : *timed_;
  }

  const Machine machine_;
  const Driver& driver;
  Plan& plan_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Timed> timed_, empty_;
};

struct Shared {
  Plan plan;
  Driver driver;
};

template <typename Work>
const char* tried(Work work) {
  static std::string message;
  try {
    work();
    return nullptr;
  } catch (const CudaError& error) {
    message = error.what() + (": " + error.name);
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

}  // namespace
}  // namespace flashcore

// As a library, in a process with a current context: opens a plan, and launches it on tensors at these addresses, in
// the plan's order. Each returns a message if it fails.
extern "C" const char* flashcore_plan_open(const char* path, void** opened) {
  return flashcore::tried([&] {
    auto made = std::make_unique<flashcore::Shared>(flashcore::Shared{flashcore::Plan(path), flashcore::Driver()});
    flashcore::load(made->driver, made->plan);
    *opened = made.release();
  });
}

extern "C" const char* flashcore_plan_launch(void* opened, const flashcore::Address* addresses, void* stream) {
  return flashcore::tried([&] {
    auto& [plan, driver] = *static_cast<flashcore::Shared*>(opened);
    flashcore::launch(driver, plan, {addresses, addresses + plan.tensors.size()}, stream);
  });
}

int main(int count, char** words) {
  using namespace flashcore;
  const bool only_checks = count == 3 && std::string(words[1]) == "--check";
  if (count != 2 && !only_checks) std::_Exit(failed(2, "usage", "expected [--check] PLAN"));
  std::_Exit(run([&] {
    Plan plan(words[count - 1]);
    if (only_checks) return say("checked");
    Session session(plan);
    answer(session);
  }));
}
