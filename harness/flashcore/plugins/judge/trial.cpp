// Runs plans for the judge: every call has inputs of its own, and all memory of ours is written again before it. It adds
// nothing that a candidate brings but its kernels. docs/explanation/judge.md says why each step is there.
//
//   trial FOLDER    reads a command from each line of standard input, writes events as the launcher does
//
//   plan FILE KEY   loads a plan instead of the last one; hashes are of that key
//   state CUBIN NAME    a global variable, which is written before each call
//   once K              one call on content K. `outside`: bytes beside the tensors that it wrote; `changed`: inputs
//   trial MODE N K...   a call on each of N contents, each in a graph of its own: `us` that it adds between events around it
//                       and spacers, `host_us` that it adds to all by the host's clock; a hash of each call's outputs
//   events MODE N K...  the same, with the events around the call alone
//   result CALL TENSOR FILE    an output of a call of the last command
//
// Content K of tensor x is in the file x.K.raw of the folder.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>

#include "launch.hpp"

namespace flashcore {
namespace {

constexpr int kOptinShared = 97, kPageable = 88, kLocalBytes = 3;  // of devices, devices, functions
constexpr unsigned kThreads = 256, kMostThreadsOfBlock = 1024;
constexpr std::int64_t kMostContents = 1 << 20;
constexpr Size kPage = Size{2} << 20, kStep = 256, kGap = 1 << 12;  // an allocation's unit, an alignment, a gap's least
// Two numbers of a word's place and the key, and the word mixed with them, or back: a kernel that knows a word before and
// after it still cannot make another.
#define FLASHCORE_STEP(z) \
  "  shr.u64 %s, " z ", 30; xor.b64 " z ", " z ", %s; mul.lo.s64 " z ", " z ", 0xBF58476D1CE4E5B9;\n" \
  "  shr.u64 %s, " z ", 27; xor.b64 " z ", " z ", %s; mul.lo.s64 " z ", " z ", 0x94D049BB133111EB;\n" \
  "  shr.u64 %s, " z ", 31; xor.b64 " z ", " z ", %s;\n"
#define FLASHCORE_NUMBERS(place) \
  "  add.s64 %z, %at, " place "; mad.lo.s64 %z, %z, 0x9E3779B97F4A7C15, %key;\n" FLASHCORE_STEP("%z") \
  "  add.s64 %y, %z, %key;\n" FLASHCORE_STEP("%y")
#define FLASHCORE_MASK(word) \
  "  xor.b64 " word ", " word ", %z; mul.lo.s64 " word ", " word ", 0x9E3779B97F4A7C15;\n" \
  "  shr.u64 %s, " word ", 32; xor.b64 " word ", " word ", %s; xor.b64 " word ", " word ", %y;\n"
#define FLASHCORE_UNMASK(word) \
  "  xor.b64 " word ", " word ", %y; shr.u64 %s, " word ", 32; xor.b64 " word ", " word ", %s;\n" \
  "  mul.lo.s64 " word ", " word ", 0xF1DE83E19937733D; xor.b64 " word ", " word ", %z;\n"
#define FLASHCORE_PLACE \
  "  mov.u32 %block, %ctaid.x; mov.u32 %size, %ntid.x; mov.u32 %thread, %tid.x;\n" \
  "  mad.lo.s32 %thread, %block, %size, %thread; mul.wide.u32 %at, %thread, 16;\n" \
  "  mov.u32 %block, %nctaid.x; mul.lo.s32 %size, %size, %block; mul.wide.u32 %step, %size, 16;\n"
// A kernel that takes 16 bytes per thread and step.
#define FLASHCORE_PASS(name, mix, store, end) \
  ".visible .entry " name "(.param .u64 from, .param .u64 to, .param .u64 bytes, .param .u64 key) {\n" \
  "  .reg .b64 %from, %to, %end, %at, %step, %key, %z, %y, %s, %sum, %v<2>;\n" \
  "  .reg .b32 %block, %size, %thread; .reg .pred %again;\n" \
  "  ld.param.u64 %from, [from]; ld.param.u64 %to, [to]; ld.param.u64 %end, [bytes]; ld.param.u64 %key, [key];\n" \
  "  cvta.to.global.u64 %from, %from; cvta.to.global.u64 %to, %to; mov.u64 %sum, 0;\n" FLASHCORE_PLACE \
  "  add.s64 %from, %from, %at;\nloop:\n  setp.ge.u64 %again, %at, %end; @%again bra done;\n" \
  "  ld.global.v2.u64 {%v0, %v1}, [%from];\n" FLASHCORE_NUMBERS("8") mix("%v0") FLASHCORE_NUMBERS("16") mix("%v1") \
  store "  add.s64 %at, %at, %step; add.s64 %from, %from, %step;\n  bra loop;\ndone:\n" end "  ret;\n}\n"
#define FLASHCORE_STORE "  add.s64 %s, %to, %at; st.global.v2.u64 [%s], {%v0, %v1};\n"
#define FLASHCORE_HEADER ".version 7.0\n.target sm_80\n.address_size 64\n"
constexpr char kPasses[] = FLASHCORE_HEADER FLASHCORE_PASS("mask", FLASHCORE_MASK, FLASHCORE_STORE, "")
    FLASHCORE_PASS("unmask", FLASHCORE_UNMASK, FLASHCORE_STORE, "")
    FLASHCORE_PASS("digest", FLASHCORE_MASK, "  add.s64 %sum, %sum, %v0; add.s64 %sum, %sum, %v1;\n",
                   "  red.global.add.u64 [%to], %sum;\n") R"(
.extern .shared .align 16 .b8 room[];
.visible .entry poison(.param .u64 to, .param .u64 value, .param .u64 bytes) {
  .reg .b64 %to, %end, %at, %step; .reg .b32 %a, %block, %size, %thread; .reg .pred %again;
  ld.param.u64 %to, [to]; ld.param.u32 %a, [value]; ld.param.u64 %end, [bytes];
  cvta.to.global.u64 %to, %to;
)" FLASHCORE_PLACE R"(
  add.s64 %to, %to, %at;
loop:
  setp.ge.u64 %again, %at, %end; @%again ret;
  st.global.v4.u32 [%to], {%a, %a, %a, %a};
  add.s64 %at, %at, %step; add.s64 %to, %to, %step;
  bra loop;
}
.visible .entry scrub_shared(.param .u64 bytes, .param .u64 value) {
  .reg .b32 %at, %end, %a, %step, %room; .reg .pred %again;
  ld.param.u32 %end, [bytes]; ld.param.u32 %a, [value];
  mov.u32 %at, %tid.x; mov.u32 %step, %ntid.x; mul.lo.s32 %at, %at, 4; mul.lo.s32 %step, %step, 4; mov.u32 %room, room;
  add.s32 %end, %end, %room; add.s32 %at, %at, %room;
loop:
  setp.ge.u32 %again, %at, %end; @%again ret;
  st.volatile.shared.u32 [%at], %a;
  add.s32 %at, %at, %step;
  bra loop;
})";
constexpr char kLocal[] = FLASHCORE_HEADER R"(
.visible .entry scrub_local(.param .u64 sink, .param .u64 value) {
  .local .align 16 .b8 frame[LOCAL];
  .reg .b64 %frame, %at, %end, %sink; .reg .b32 %a; .reg .pred %again;
  ld.param.u64 %sink, [sink]; ld.param.u32 %a, [value];
  mov.u64 %frame, frame; mov.u64 %at, %frame; add.s64 %end, %frame, LOCAL;
loop:
  st.local.v4.u32 [%at], {%a, %a, %a, %a};
  add.s64 %at, %at, 16; setp.lt.u64 %again, %at, %end;
  @%again bra loop;
  setp.eq.u64 %again, %sink, 0; @%again ret;
  add.s64 %at, %frame, %sink; ld.local.u32 %a, [%at]; st.global.u32 [%sink], %a;
  ret;
})";

// With heterogeneous memory management, kernels may reach this process's memory, and then whatever it may do. So it gives
// up (by Landlock) all files but libraries, devices and the plan's folder, all programs, and, where the system can, TCP and
// signals to others. Returns whether the system can do it.
bool confine(const std::filesystem::path& folder) {
  constexpr std::uint64_t kWrite = 1 << 1, kRead = 1 << 2, kList = 1 << 3, kMake = 1 << 5 | 1 << 8, kAll = (1 << 13) - 1;
  constexpr long kCreate = 444, kAdd = 445, kRestrict = 446;
  constexpr std::uint64_t kRefused[] = {kAll, 3, 3};  // of files, TCP ports, sockets and processes outside
  int rules = -1;
  for (std::size_t size = sizeof kRefused; rules < 0 && size > 0; size -= 8) {
    rules = static_cast<int>(syscall(kCreate, kRefused, size, 0));
  }
  if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const auto allow = [&](const std::string& path, std::uint64_t rights) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) rights &= ~(kList | kMake);
    struct [[gnu::packed]] { std::uint64_t rights; std::int32_t file; } rule{rights, open(path.c_str(), O_PATH | O_CLOEXEC)};
    if (rule.file >= 0) syscall(kAdd, rules, 1, &rule, 0), close(rule.file);
  };
  for (const char* path : {"/usr", "/lib", "/lib64", "/etc", "/opt", "/proc", "/sys", "/nix", "/run/opengl-driver"}) allow(path, kRead | kList);
  allow("/proc/self", kRead | kWrite | kList);  // the driver names its threads, and fails if it cannot
  std::istringstream libraries(std::getenv("LD_LIBRARY_PATH") ? std::getenv("LD_LIBRARY_PATH") : "");
  for (std::string path; std::getline(libraries, path, ':');) allow(path, kRead | kList);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("nvidia", 0) == 0 || name == "null" || name == "zero" || name == "urandom" || name == "shm") allow(entry.path(), kRead | kWrite | kList | kMake);
  }
  allow(folder, kRead | kWrite | kList | kMake);
  return syscall(kRestrict, rules, 0) == 0;
}

Size rounded(Size bytes, Size unit) { return (bytes + unit - 1) / unit * unit; }

// Memory of whole allocation units, so that no byte beside it is reachable that nothing writes.
struct Block {
  Address at = 0;
  Size bytes = 0;
};

class Session {
 public:
  explicit Session(std::filesystem::path folder)
      : folder_(std::move(folder)), is_confined_(confine(folder_)), driver(machine_.driver) {
    std::random_device chance;
    std::seed_seq seeds{chance(), chance(), chance(), chance(), chance(), chance(), chance(), chance()};
    draw_.seed(seeds);
    Handle module = nullptr;
    CUDA(cuModuleLoadData, &module, kPasses);
    CUDA(cuModuleGetFunction, &mask_, module, "mask");
    CUDA(cuModuleGetFunction, &unmask_, module, "unmask");
    CUDA(cuModuleGetFunction, &digest_, module, "digest");
    CUDA(cuModuleGetFunction, &poison_, module, "poison");
    CUDA(cuModuleGetFunction, &shared_, module, "scrub_shared");
    shared_bytes_ = static_cast<unsigned>(std::max(machine_.attribute(kOptinShared), 1024));
    CUDA(cuFuncSetAttribute, shared_, kMostDynamicShared, static_cast<int>(shared_bytes_));
    say_device(machine_, member("reaches_host_memory", machine_.attribute(kPageable)) + member("confined", is_confined_ ? 1 : 0));
  }

  // Carries out a command, and says so. Throws Refused.
  void command(const std::string& line) {
    Words words(line, folder_);
    const int which = words.one_of({"plan", "once", "trial", "events", "state", "result"});
    if (which > 0 && !plan_) words.refuse("a plan first");
    if (which == 0) {
      const std::string path = words.file();
      digest_key_ = static_cast<std::uint64_t>(words.integer(1, INT64_MAX));
      open(path);
    } else if (which == 1) {
      fill({words.integer(0, kMostContents)});
      say("once", once());
    } else if (which == 2 || which == 3) {
      const bool is_cold = words.one_of({"isolated", "cold"}) == 1;
      std::vector<std::int64_t> contents;
      for (std::int64_t left = words.integer(1, slots_); left > 0; --left) contents.push_back(words.integer(0, kMostContents));
      fill(contents);
      say("trial", trial(is_cold, which == 3));
    } else if (which == 4) {
      const auto module = modules_.find(words.name());
      if (module == modules_.end()) words.refuse("a cubin of the plan");
      Block& made = states_.emplace_back();
      CUDA(cuModuleGetGlobal, &made.at, &made.bytes, module->second, words.name().c_str());
      say("state");
    } else {
      const auto call = static_cast<std::size_t>(words.integer(0, calls_ - 1));
      const std::string name = words.name();
      const std::size_t tensor = plan_->index(name);
      if (tensor == plan_->tensors.size() || !is_written(tensor)) words.refuse("an output of the plan");
      const std::string path = words.file();
      unmask(call, tensor);
      machine_.wait();
      const std::string bytes = bytes_at(staging_.at, plan_->tensors[tensor].bytes);
      if (!(std::ofstream(path, std::ios::binary) << bytes << std::flush)) throw Refused(path + ": expected room for it");
      say("result");
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_given(std::size_t i) const {
    return plan_->tensors[i].role == Tensor::input || plan_->tensors[i].role == Tensor::inout;
  }
  bool is_written(std::size_t i) const {
    return plan_->tensors[i].role == Tensor::output || plan_->tensors[i].role == Tensor::inout;
  }
  Size below(Size most) { return std::uniform_int_distribution<Size>(0, most - 1)(draw_); }

  void open(const std::string& path) {
    for (const std::vector<Block>* each : {&given_, &results_, &own_}) {
      for (const Block& one : *each) CUDA(cuMemFree, one.at);
    }
    given_.clear(), results_.clear(), own_.clear(), states_.clear(), addresses_.clear();
    plan_ = std::make_unique<Plan>(path);
    modules_ = load(driver, *plan_);
    local_ = 0;
    for (const Launch& one : plan_->launches) {
      int bytes = 0;
      CUDA(cuFuncGetAttribute, &bytes, kLocalBytes, one.function);
      local_ = std::max(local_, bytes);
    }
    if (local_ > 0) {
      std::string text = kLocal;
      const std::string size = std::to_string(rounded(static_cast<Size>(local_), 16));
      for (std::size_t at = 0; (at = text.find("LOCAL", at)) != std::string::npos;) text.replace(at, 5, size);
      Handle module = nullptr;
      CUDA(cuModuleLoadData, &module, text.c_str());
      CUDA(cuModuleGetFunction, &local_kernel_, module, "scrub_local");
    }
    place();
    say("loaded", member("sets", slots_) + member("local_bytes", local_) + member("arena", std::to_string(arena_.bytes)));
  }

  Block allocated(Size bytes) const {
    Block made{0, rounded(bytes, kPage)};
    CUDA(cuMemAlloc, &made.at, made.bytes);
    return made;
  }

  // Lays the tensors out in an order and with gaps of chance, and allocates slots for the calls' contents and results.
  void place() {
    const std::size_t count = plan_->tensors.size();
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), draw_);
    offsets_.resize(count), at_.resize(count), given_digests_.resize(count);
    Size end = 0, bytes = 0, packed = 0, largest = 0;
    for (const std::size_t i : order) {
      offsets_[i] = end + kGap + kStep * below(64);
      end = rounded(offsets_[i] + plan_->tensors[i].bytes, kStep);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& one = plan_->tensors[i];
      at_[i] = packed;
      if (one.role == Tensor::workspace) continue;
      bytes += one.bytes;
      packed += rounded(one.bytes, kStep);
      largest = std::max<Size>(largest, one.bytes);
    }
    own_.push_back(arena_ = allocated(end + kGap));
    own_.push_back(staging_ = allocated(largest + 2 * kStep));
    for (std::size_t i = 0; i < count; ++i) addresses_.push_back(arena_.at + offsets_[i]);
    slots_ = static_cast<int>(std::clamp<Size>((Size{1} << 28) / std::max<Size>(bytes, 1), 2, 16));
    for (int i = 0; i < slots_; ++i) given_.push_back(allocated(packed + kStep)), results_.push_back(allocated(packed + kStep));
  }

  void run(Handle kernel, unsigned blocks, unsigned threads, unsigned shared, std::uint64_t a, std::uint64_t b,
           std::uint64_t c, std::uint64_t d = 0) const {
    void* arguments[] = {&a, &b, &c, &d};
    const LaunchConfig config{{blocks, 1, 1}, {threads, 1, 1}, shared, machine_.stream, nullptr, 0};
    CUDA(cuLaunchKernelEx, &config, kernel, arguments, nullptr);
  }
  void pass(Handle kernel, Address from, Address to, Size bytes, std::uint64_t key) const {
    run(kernel, blocks(), kThreads, 0, from, to, rounded(bytes, 16), key);
  }
  void poison(const Block& block, unsigned value) const {
    run(poison_, blocks(), kThreads, 0, block.at, value, block.bytes);
  }
  unsigned blocks() const { return 4 * static_cast<unsigned>(machine_.sms); }
  unsigned byte4() { return (1 + static_cast<unsigned>(below(254))) * 0x01010101u; }

  // The keys of a call's tensor are in no memory that a kernel of the plan can name; the complement masks its result.
  std::uint64_t key(std::size_t call, std::size_t tensor) const { return keys_[call * plan_->tensors.size() + tensor]; }
  // Enqueues that a call's result comes to the staging memory.
  void unmask(std::size_t call, std::size_t tensor) const {
    pass(unmask_, results_[call].at + at_[tensor], staging_.at, plan_->tensors[tensor].bytes, ~key(call, tensor));
  }
  // The hash of a tensor that is in the staging memory, or is enqueued to come there.
  std::uint64_t digest(std::size_t tensor) const {
    const Size bytes = plan_->tensors[tensor].bytes, whole = rounded(bytes, 16);
    const Address sum = staging_.at + staging_.bytes - 16;
    if (whole > bytes) CUDA(cuMemsetD8Async, staging_.at + bytes, 0, whole - bytes, machine_.stream);
    CUDA(cuMemsetD8Async, sum, 0, 8, machine_.stream);
    run(digest_, static_cast<unsigned>(machine_.sms), kThreads, 0, staging_.at, sum, whole, digest_key_ + tensor);
    machine_.wait();
    std::uint64_t made = 0;
    CUDA(cuMemcpyDtoH, &made, sum, 8);
    return made;
  }
  std::string bytes_at(Address at, Size bytes) const {
    std::string made(bytes, '\0');
    CUDA(cuMemcpyDtoH, made.data(), at, bytes);
    return made;
  }
  // Copies a file of that size to the staging memory, through memory that the driver need not copy it from to its own.
  void stage(const std::string& path, Size bytes) {
    std::error_code error;
    const bool fits = std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) == bytes;
    if (fits && bytes > buffer_bytes_) {
      CUDA(cuMemAllocHost, &buffer_, bytes);
      buffer_bytes_ = bytes;
    }
    std::ifstream file(path, std::ios::binary);
    if (!fits || !file.read(static_cast<char*>(buffer_), static_cast<std::streamsize>(bytes))) {
      throw Refused(path + ": expected a file of " + std::to_string(bytes) + " bytes");
    }
    machine_.wait();  // for the last one to be masked
    CUDA(cuMemcpyHtoD, staging_.at, buffer_, bytes);
    CUDA(cuStreamSynchronize, nullptr);
    std::memset(buffer_, 0, bytes);  // kernels can read it
  }

  // Writes all of the slots: the first with these contents, in this order.
  void fill(const std::vector<std::int64_t>& contents) {
    calls_ = static_cast<int>(contents.size());
    const unsigned value = byte4();
    keys_.resize(static_cast<std::size_t>(calls_) * plan_->tensors.size());
    for (std::uint64_t& one : keys_) one = draw_() | 1;
    for (int i = 0; i < slots_; ++i) poison(given_[i], value), poison(results_[i], value);
    for (std::size_t i = 0; i < contents.size(); ++i) {
      for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
        if (!is_given(t)) continue;
        const Tensor& one = plan_->tensors[t];
        stage(folder_ / (one.name + "." + std::to_string(contents[i]) + ".raw"), one.bytes);
        if (i == 0) given_digests_[t] = digest(t);
        pass(mask_, staging_.at, given_[i].at + at_[t], one.bytes, key(i, t));
      }
    }
    poison(staging_, value);
    machine_.wait();
  }

  // Enqueues what comes before a call: all that a kernel may have left anywhere is overwritten, then its inputs are there.
  void before(const Block& given, const std::uint64_t* keys, unsigned value) {
    run(shared_, static_cast<unsigned>(machine_.sms), kMostThreadsOfBlock, shared_bytes_, shared_bytes_, value, 0);
    if (local_ > 0) run(local_kernel_, 2 * static_cast<unsigned>(machine_.sms), kMostThreadsOfBlock, 0, 0, value, 0);
    poison(arena_, value);
    for (const Block& one : states_) {
      CUDA(cuMemsetD8Async, one.at, static_cast<unsigned char>(value), one.bytes, machine_.stream);
    }
    for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
      if (is_given(t)) pass(unmask_, given.at + at_[t], addresses_[t], plan_->tensors[t].bytes, keys[t]);
    }
  }
  // Enqueues a call between spacers, and events around these, or around the call alone.
  void spaced(int call, bool is_there, bool is_tight) {
    const auto sms = static_cast<unsigned>(machine_.sms);
    if (!is_tight) machine_.record(call, 0);
    machine_.spin(kSpacer, sms);
    if (is_tight) machine_.record(call, 0);
    if (is_there) launch(driver, *plan_, addresses_, machine_.stream);
    if (is_tight) machine_.record(call, 1);
    machine_.spin(0, sms);
    if (!is_tight) machine_.record(call, 1);
  }
  // Enqueues what comes after it. With or without a call, what is taken comes from DRAM and takes as long.
  void after(int call, unsigned value) {
    machine_.flush(value);
    for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
      if (is_written(t)) pass(mask_, addresses_[t], results_[call].at + at_[t], plan_->tensors[t].bytes, ~key(call, t));
    }
  }

  std::string once() {
    const unsigned value = byte4();
    before(given_[0], keys_.data(), value);
    launch(driver, *plan_, addresses_, machine_.stream);
    after(0, value);
    machine_.wait();
    std::map<Size, Size> taken{{arena_.bytes, arena_.bytes}};  // from, to
    std::string changed;
    for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
      const Tensor& one = plan_->tensors[t];
      taken[offsets_[t]] = offsets_[t] + (is_given(t) ? rounded(one.bytes, 16) : one.bytes);
      if (one.role != Tensor::input) continue;
      CUDA(cuMemcpyDtoDAsync, staging_.at, addresses_[t], one.bytes, machine_.stream);
      if (digest(t) != given_digests_[t]) changed += (changed.empty() ? "" : " ") + one.name;
    }
    int outside = 0;
    Size at = 0;
    for (const auto& [from, to] : taken) {
      for (const char byte : bytes_at(arena_.at + at, from - at)) outside += static_cast<unsigned char>(byte) != (value & 255);
      at = to;
    }
    return member("outside", outside) + member("changed", changed) + member("hashes", hashes());
  }

  // Times (us) of the replay of a graph of a call, or of all but the call: between the events, and of all by the host's
  // clock. No call before it leaves persisting lines in L2.
  std::pair<double, double> replayed(int call, bool is_cold, bool is_there, bool is_tight, unsigned value) {
    Handle graph = nullptr, made = nullptr;
    CUDA(cuCtxResetPersistingL2Cache);
    CUDA(cuStreamBeginCapture, machine_.stream, kRelaxedCapture);
    before(given_[call], &keys_[static_cast<std::size_t>(call) * plan_->tensors.size()], value);
    if (is_cold) machine_.flush(value + 1);
    for (std::size_t t = 0; !is_cold && t < plan_->tensors.size(); ++t) {  // L2 has what is read often in both its halves
      const Address sum = staging_.at + staging_.bytes - 16;
      if (is_given(t)) run(digest_, blocks(), kThreads, 0, addresses_[t], sum, plan_->tensors[t].bytes & ~Size{15}, 1);
    }
    spaced(call, is_there, is_tight);
    after(call, value);
    CUDA(cuStreamEndCapture, machine_.stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, &made, graph, 0);
    CUDA(cuGraphDestroy, graph);
    CUDA(cuGraphUpload, made, machine_.stream);
    machine_.wait();
    const auto start = Clock::now();
    machine_.between(kCover, [&] { machine_.replay(made); });
    const double host_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    CUDA(cuGraphExecDestroy, made);
    return {machine_.elapsed_us(call), host_us};
  }

  std::string trial(bool is_cold, bool is_tight) {
    const unsigned value = byte4();
    double us = 0, host_us = 0;
    for (int i = 0; i < calls_; ++i) {
      const auto [spacers, host_spacers] = replayed(i, is_cold, false, is_tight, value);
      const auto [both, host_both] = replayed(i, is_cold, true, is_tight, value);  // the last, whose results stay
      us += (both - spacers) / calls_;
      host_us += (host_both - host_spacers) / calls_;
    }
    return member("us", std::vector<double>{std::max(us, kResolutionUs)}) +
           member("host_us", std::vector<double>{host_us}) + member("hashes", hashes());
  }

  std::string hashes() const {
    std::string made;
    for (int i = 0; i < calls_; ++i) {
      std::uint64_t whole = 0;
      for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
        if (is_written(t)) unmask(i, t), whole = whole * 0x100000001b3u + digest(t);
      }
      made += (i > 0 ? " " : "") + std::to_string(whole);
    }
    return made;
  }

  const std::filesystem::path folder_;
  const bool is_confined_;  // before the driver starts threads
  const Machine machine_;
  const Driver& driver;
  std::unique_ptr<Plan> plan_;
  std::mt19937_64 draw_;
  Handle mask_ = nullptr, unmask_ = nullptr, digest_ = nullptr, poison_ = nullptr, shared_ = nullptr, local_kernel_ = nullptr;
  int local_ = 0;
  unsigned shared_bytes_ = 0;
  std::map<std::string, Handle> modules_;
  std::vector<Block> states_, given_, results_, own_;
  Block arena_, staging_;
  std::vector<Size> offsets_, at_;  // of each tensor: in the arena, in a slot
  std::vector<Address> addresses_;
  std::vector<std::uint64_t> keys_, given_digests_;  // the latter of the first call's tensors
  std::uint64_t digest_key_ = 1;
  void* buffer_ = nullptr;
  Size buffer_bytes_ = 0;
  int slots_ = 0, calls_ = 1;
};

}  // namespace
}  // namespace flashcore

int main(int count, char** words) {
  using namespace flashcore;
  if (count != 2) std::_Exit(failed(2, "usage", "expected FOLDER"));
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // also while it waits for a kernel that does not end
  std::_Exit(run([&] {
    Session session(words[1]);
    answer(session);
  }));
}
