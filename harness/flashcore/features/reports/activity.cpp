// Writes every kernel launch of a process as lines of JSON, from CUPTI's activity records. The CUDA driver loads this
// library at cuInit (CUDA_INJECTION64_PATH), in each process that uses CUDA. FLASHCORE_ACTIVITY names the folder for the
// files, one for each process and each exec; FLASHCORE_CUPTI names libcupti, which is loaded here unless the process has
// it already (torch does). A failure is a line of the file; the program goes on.
//
//   {"process": 41, "cupti": 130001}
//   {"name": "_Z4gemmPf", "id": 0}
//   [id, correlation, start ns, end ns, grid x, y, z, block x, y, z, registers, static bytes, dynamic bytes]
//   {"error": "cuptiActivityEnable", "code": 15, "reason": "CUPTI_ERROR_NOT_INITIALIZED"}
//   {"dropped": 12}
//
// A process that ends by _exit or a signal keeps what was completed a flush before.
#include <cupti.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace {

using Kernel = CUpti_ActivityKernel4;  // later records only append fields
constexpr size_t buffer_bytes = 1 << 20;
constexpr int most_buffers = 64;  // further records are dropped, and counted
constexpr auto flush_interval = std::chrono::milliseconds(200);

struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) get_next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) get_num_dropped_records;
};

struct State {
  Cupti cupti{};
  int file = -1;
  pid_t process = 0;
  std::mutex writing;
  std::timed_mutex flushing;
  std::atomic<int> buffers{0};
  std::unordered_map<std::string, size_t> names;
};

State& state = *new State;  // never destroyed: records may come while the process exits

void write_all(const std::string& lines) {
  for (size_t done = 0; done < lines.size();) {
    const ssize_t written = write(state.file, lines.data() + done, lines.size() - done);
    if (written < 0 && errno != EINTR) return;
    done += written > 0 ? static_cast<size_t>(written) : 0;
  }
}

std::string quoted(const char* text) {
  std::string result = "\"";
  for (; text != nullptr && *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') result += '\\';
    result += static_cast<unsigned char>(*text) < ' ' ? ' ' : *text;
  }
  return result + '"';
}

void write_error(const char* call, int code, const char* reason) {
  write_all("{\"error\": " + quoted(call) + ", \"code\": " + std::to_string(code) + ", \"reason\": " + quoted(reason) + "}\n");
}

bool succeeded(const char* call, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return true;
  const char* reason = nullptr;
  state.cupti.get_result_string(result, &reason);
  write_error(call, static_cast<int>(result), reason);
  return false;
}

void CUPTIAPI on_requested(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = nullptr;
  *size = *records = 0;
  if (state.buffers < most_buffers && (*buffer = static_cast<uint8_t*>(aligned_alloc(8, buffer_bytes))) != nullptr) {
    *size = buffer_bytes;
    ++state.buffers;
  }
}

void append(std::string& lines, const Kernel& kernel) {
  const auto [name, is_new] = state.names.try_emplace(kernel.name != nullptr ? kernel.name : "", state.names.size());
  if (is_new) {
    lines += "{\"name\": " + quoted(kernel.name) + ", \"id\": " + std::to_string(name->second) + "}\n";
  }
  const long long values[] = {static_cast<long long>(name->second), kernel.correlationId,
                              static_cast<long long>(kernel.start), static_cast<long long>(kernel.end),
                              kernel.gridX, kernel.gridY, kernel.gridZ, kernel.blockX, kernel.blockY, kernel.blockZ,
                              kernel.registersPerThread, kernel.staticSharedMemory, kernel.dynamicSharedMemory};
  char separator = '[';
  for (const long long value : values) {
    lines += separator + std::to_string(value);
    separator = ',';
  }
  lines += "]\n";
}

void write_records(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid_bytes) {
  const std::lock_guard<std::mutex> lock(state.writing);
  std::string lines;
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 && state.cupti.get_next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) append(lines, *reinterpret_cast<const Kernel*>(record));
  }
  size_t dropped = 0;
  if (state.cupti.get_num_dropped_records(context, stream, &dropped) == CUPTI_SUCCESS && dropped > 0) {
    lines += "{\"dropped\": " + std::to_string(dropped) + "}\n";
  }
  write_all(lines);
}

void CUPTIAPI on_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid_bytes) {
  if (buffer == nullptr) return;
  try {
    if (getpid() == state.process) write_records(context, stream, buffer, valid_bytes);
  } catch (...) {  // no memory: these records are lost, the program runs on
  }
  free(buffer);
  --state.buffers;
}

void flush_regularly() {
  while (true) {
    std::this_thread::sleep_for(flush_interval);
    const std::lock_guard<std::timed_mutex> lock(state.flushing);
    state.cupti.flush_all(0);
  }
}

void finish() {
  // The lock is kept: no flush may begin while the driver is being torn down. A flush that hangs is not waited for.
  if (getpid() == state.process && state.flushing.try_lock_for(std::chrono::seconds(5))) {
    state.cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
}

bool open_file() {
  const char* folder = getenv("FLASHCORE_ACTIVITY");
  if (folder == nullptr) return false;
  state.process = getpid();
  const std::string path = std::string(folder) + '/' + std::to_string(state.process) + '-';
  for (int number = 0; number < 1000 && state.file < 0; ++number) {
    const std::string name = path + std::to_string(number) + ".jsonl";
    state.file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (state.file < 0 && errno != EEXIST) return false;
  }
  return state.file >= 0;
}

void* loaded_cupti() {
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  }
  const char* path = getenv("FLASHCORE_CUPTI");
  return dlopen(path != nullptr ? path : "libcupti.so", RTLD_NOW);
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) write_error("dlsym", 0, name);
  return function != nullptr;
}

bool load_cupti() {
  void* library = loaded_cupti();
  if (library == nullptr) {
    write_error("dlopen", 0, dlerror());
    return false;
  }
  Cupti& cupti = state.cupti;
  return find(library, "cuptiGetVersion", cupti.get_version) &&
         find(library, "cuptiGetResultString", cupti.get_result_string) &&
         find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
         find(library, "cuptiActivityEnable", cupti.enable) && find(library, "cuptiActivityFlushAll", cupti.flush_all) &&
         find(library, "cuptiActivityGetNextRecord", cupti.get_next_record) &&
         find(library, "cuptiActivityGetNumDroppedRecords", cupti.get_num_dropped_records);
}

void start() {
  if (state.process != 0 || !open_file() || !load_cupti()) return;
  uint32_t version = 0;
  state.cupti.get_version(&version);
  write_all("{\"process\": " + std::to_string(state.process) + ", \"cupti\": " + std::to_string(version) + "}\n");
  if (!succeeded("cuptiActivityRegisterCallbacks", state.cupti.register_callbacks(on_requested, on_completed)) ||
      !succeeded("cuptiActivityEnable", state.cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL))) {
    return;
  }
  sigset_t all, before;  // the program's signal handlers run on its own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(flush_regularly).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  atexit(finish);
}

}  // namespace

extern "C" int InitializeInjection() {
  try {
    start();
  } catch (...) {  // no memory or no thread: the program runs without the survey
  }
  return 1;
}
