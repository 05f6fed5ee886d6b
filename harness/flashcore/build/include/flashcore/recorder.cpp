// Replaces the CUDA runtime for a launcher, and reports its calls. Nothing runs.
//
// Linked before the runtime into a variant's plan library. The plan reader simulates the device: what a launch, an
// attribute or an occupancy query returns. Streams are followed here. Calls that are not replaced reach the runtime,
// which fails without a GPU. nvcc compiles <<<>>> to a pushed configuration and a launch call, which differs between
// releases, so all are replaced. A kernel is identified by its address, which the object registers with its name when
// it is loaded.
#include <cuda_runtime_api.h>
#include <flashcore/launch.h>

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <typeinfo>
#include <vector>

extern "C" {
// What a launcher does that cannot be recorded, or cannot work.
enum flashcore_fault {
  flashcore_unknown,
  flashcore_other_stream,
  flashcore_unjoined_stream,
  // Harmless in the first call.
  flashcore_default_stream,
  flashcore_not_capturable
};
// What a launcher asks about the device or a kernel.
enum flashcore_question { flashcore_of_device, flashcore_of_kernel, flashcore_blocks_per_sm };

struct flashcore_device {
  // Both return a cudaError_t.
  int (*launch)(const flashcore_launch_record*, void** args);
  int (*set_attribute)(const char* kernel, int attribute, int value);
  // The answer, or -1 if it is unknown. `number` is an attribute, or the threads per block.
  std::int64_t (*ask)(int question, const char* kernel, int number, std::uint64_t dynamic_smem);
  void (*report)(int fault, const char* subject);
};

// Of the variant.
int flashcore_launch(const void* args, const std::int64_t* dims, void* workspace, void* stream, const char** error);
const char* flashcore_error_string(int code);
}

namespace {

struct Configuration {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;
};

// Created on first use, since objects register their kernels before this file's globals are initialized.
std::map<const void*, std::string>& names() {
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}
std::vector<Configuration> pushed;
const flashcore_device* device;
cudaError_t last;      // the error that cudaGetLastError returns
bool is_faulty;        // whether anything was reported or refused
std::jmp_buf returned; // where a launcher that ends the process returns to
std::string message;

void report(flashcore_fault fault, const char* subject) {
  is_faulty = true;
  device->report(fault, subject);
}
cudaError_t unknown(const char* call) {
  report(flashcore_unknown, call);
  return last = cudaErrorNotSupported;
}
// A call that is harmless in the first call, but cannot be part of a CUDA graph.
cudaError_t only_once(const char* call, flashcore_fault fault = flashcore_not_capturable) {
  device->report(fault, call);
  return cudaSuccess;
}
std::int64_t ask(flashcore_question question, const void* kernel, int number, std::size_t smem, const char* call) {
  const auto name = names().find(kernel);
  const std::int64_t answer =
      kernel == nullptr || name != names().end()
          ? device->ask(question, kernel == nullptr ? nullptr : name->second.c_str(), number, smem)
          : -1;
  if (answer < 0) unknown(call);
  return answer;
}
template <typename Handle>
cudaError_t create(Handle* handle) {
  *handle = reinterpret_cast<Handle>(new char);
  return cudaSuccess;
}
cudaError_t allocate(void** address, std::size_t bytes) {
  static std::uintptr_t next = std::uintptr_t{1} << 52;
  *address = reinterpret_cast<void*>(next);
  next += (bytes + 511) / 256 * 256;
  return cudaSuccess;
}

// --- order: the work that a stream waits for is a count of each stream's

using Work = std::map<const void*, unsigned>;
char the_stream;  // its address is the stream that the launcher is given
std::map<const void*, Work> streams;
std::map<const void*, Work> events;
std::map<const void*, std::string> newest;  // the last work on a stream

void wait(const void* stream, const Work& work) {
  for (const auto& [other, count] : work) {
    unsigned& known = streams[stream][other];
    known = known < count ? count : known;
  }
}
void enqueue(const void* stream, const char* call) {
  if (streams[stream].count(&the_stream) == 0) report(flashcore_other_stream, call);
  ++streams[stream][stream];
  newest[stream] = call;
}

cudaError_t launched(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem, const void* stream,
                     const cudaLaunchAttribute* attributes = nullptr, unsigned count = 0, bool cooperative = false) {
  const auto name = names().find(kernel);
  if (name == names().end()) return unknown("a launch of a kernel that no object registered");
  flashcore_launch_record r{name->second.c_str(), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, {1, 1, 1},
                            static_cast<std::uint32_t>(smem), 0, cooperative};
  for (unsigned i = 0; i < count; ++i) {
    const auto& value = attributes[i].val;
    switch (attributes[i].id) {
      case cudaLaunchAttributeClusterDimension:
        r.cluster[0] = value.clusterDim.x;
        r.cluster[1] = value.clusterDim.y;
        r.cluster[2] = value.clusterDim.z;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        r.programmatic = value.programmaticStreamSerializationAllowed != 0;
        break;
      case cudaLaunchAttributeCooperative:
        r.cooperative = value.cooperative != 0;
        break;
      default:
        break;
    }
  }
  const auto error = static_cast<cudaError_t>(device->launch(&r, args));
  if (error != cudaSuccess) {
    is_faulty = true;
    return last = error;
  }
  enqueue(stream, r.kernel);
  return cudaSuccess;
}

}  // namespace

extern "C" {

// Calls the launcher. Returns its result, or the last error that nobody read; *text is what it means.
int flashcore_record(const void* args, const std::int64_t* dims, void* workspace, const flashcore_device* given,
                     const char** text) {
  device = given;
  pushed.clear();
  streams.clear();
  events.clear();
  streams[&the_stream][&the_stream] = 1;
  last = cudaSuccess;
  is_faulty = false;
  int code = -1;
  if (setjmp(returned) != 0) {
    *text = "it ends the process";
    return -1;
  }
  try {
    code = flashcore_launch(args, dims, workspace, &the_stream, text);
  } catch (const std::exception& error) {
    message = error.what();
    if (std::strncmp(typeid(error).name(), "N3c10", 5) == 0) {  // it may miss the GPU as well as a condition
      unknown(("torch (" + message.substr(0, message.find('\n')).substr(0, 100) + ")").c_str());
    }
    *text = message.c_str();
  } catch (...) {
    *text = "it throws an exception";
  }
  for (const auto& [stream, work] : streams) {
    const auto own = work.find(stream);
    if (own != work.end() && streams[&the_stream][stream] < own->second) {
      report(flashcore_unjoined_stream, newest[stream].c_str());
    }
  }
  if (code == 0) code = last;
  if (code > 0) *text = flashcore_error_string(code);
  return code;
}

// Public launchers end the process after an error. If there was none of the device's, it really ends.
[[noreturn]] void exit(int code) noexcept {
  std::fflush(nullptr);
  if (is_faulty) std::longjmp(returned, 1);
  _Exit(code);
}
[[noreturn]] void abort() noexcept {
  std::fflush(nullptr);
  if (is_faulty) std::longjmp(returned, 1);
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
  _Exit(1);
}
[[noreturn]] void __assert_fail(const char* assertion, const char* file, unsigned line, const char*) noexcept {
  std::fprintf(stderr, "%s:%u: assertion failed: %s\n", file, line, assertion);
  abort();
}

// --- registration by objects when they are loaded

void** __cudaRegisterFatBinary(void* data) {
  static void* handle[1];
  handle[0] = data;
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* address, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  names()[address] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void** host, char*, const char*, int, std::size_t size, int, int) {
  *host = std::calloc(1, size);
}
char __cudaInitModule(void**) { return 0; }

// --- launches

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t smem, cudaStream_t stream) {
  pushed.push_back({grid, block, smem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* smem, void* stream) {
  const Configuration top = pushed.back();
  pushed.pop_back();
  *grid = top.grid;
  *block = top.block;
  *smem = top.smem;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* address) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(address));
  return cudaSuccess;
}

// A call, and its name where every thread has its own default stream.
#define FLASHCORE_CALL(name, parameters, ...)       \
  cudaError_t name parameters { __VA_ARGS__ }       \
  cudaError_t name##_ptsz parameters { __VA_ARGS__ } \
  cudaError_t name##_ptds parameters { __VA_ARGS__ }

FLASHCORE_CALL(__cudaLaunchKernel,
               (cudaKernel_t kernel, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t stream),
               return launched(kernel, grid, block, args, smem, stream);)
FLASHCORE_CALL(cudaLaunchKernel,
               (const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t stream),
               return launched(kernel, grid, block, args, smem, stream);)
FLASHCORE_CALL(cudaLaunchKernelExC, (const cudaLaunchConfig_t* c, const void* kernel, void** args),
               return launched(kernel, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream, c->attrs,
                               c->numAttrs);)
FLASHCORE_CALL(cudaLaunchCooperativeKernel,
               (const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t stream),
               return launched(kernel, grid, block, args, smem, stream, nullptr, 0, true);)

// --- work that is no launch

FLASHCORE_CALL(cudaMemsetAsync, (void*, int, std::size_t, cudaStream_t stream),
               enqueue(stream, "cudaMemsetAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaMemset2DAsync, (void*, std::size_t, int, std::size_t, std::size_t, cudaStream_t stream),
               enqueue(stream, "cudaMemset2DAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaMemcpyAsync, (void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t stream),
               enqueue(stream, "cudaMemcpyAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaMemcpy2DAsync,
               (void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, cudaMemcpyKind,
                cudaStream_t stream),
               enqueue(stream, "cudaMemcpy2DAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaMemcpyToSymbolAsync,
               (const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind, cudaStream_t stream),
               enqueue(stream, "cudaMemcpyToSymbolAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaMallocAsync, (void** address, std::size_t bytes, cudaStream_t stream),
               enqueue(stream, "cudaMallocAsync"); return allocate(address, bytes);)
FLASHCORE_CALL(cudaFreeAsync, (void*, cudaStream_t stream), enqueue(stream, "cudaFreeAsync"); return cudaSuccess;)
FLASHCORE_CALL(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t, void*),
               enqueue(stream, "cudaLaunchHostFunc"); return cudaSuccess;)

FLASHCORE_CALL(cudaMemset, (void*, int, std::size_t), return only_once("cudaMemset", flashcore_default_stream);)
FLASHCORE_CALL(cudaMemcpy, (void*, const void*, std::size_t, cudaMemcpyKind), return only_once("cudaMemcpy", flashcore_default_stream);)
FLASHCORE_CALL(cudaMemcpyToSymbol, (const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind),
               return only_once("cudaMemcpyToSymbol", flashcore_default_stream);)
FLASHCORE_CALL(cudaStreamSynchronize, (cudaStream_t), return only_once("cudaStreamSynchronize");)
cudaError_t cudaDeviceSynchronize() { return only_once("cudaDeviceSynchronize"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return only_once("cudaEventSynchronize"); }
cudaError_t cudaFree(void*) { return only_once("cudaFree"); }
cudaError_t cudaFreeHost(void* address) {
  std::free(address);
  return only_once("cudaFreeHost");
}
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  allocate(address, bytes);
  return only_once("cudaMalloc");
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = std::calloc(1, bytes);
  return only_once("cudaMallocHost");
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) { return cudaMallocHost(address, bytes); }
cudaError_t cudaGetSymbolAddress(void** address, const void*) { return allocate(address, 1 << 20); }

// --- streams and events

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return create(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return create(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return create(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return create(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return create(event); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
FLASHCORE_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), events[event] = streams[stream];
               return cudaSuccess;)
FLASHCORE_CALL(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned),
               events[event] = streams[stream];
               return cudaSuccess;)
FLASHCORE_CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned), wait(stream, events[event]);
               return cudaSuccess;)
FLASHCORE_CALL(cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus* status),
               *status = cudaStreamCaptureStatusNone;
               return cudaSuccess;)
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

// --- errors. As the runtime, but a refused attribute is no error that cudaGetLastError returns.

cudaError_t cudaGetLastError() {
  const cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last; }

// --- attributes that cannot matter for a launch

cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
FLASHCORE_CALL(cudaStreamSetAttribute, (cudaStream_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue*),
               return cudaSuccess;)

// --- the device

cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const std::string call = "cudaDeviceGetAttribute of attribute " + std::to_string(static_cast<int>(attribute));
  const std::int64_t answer = ask(flashcore_of_device, nullptr, attribute, 0, call.c_str());
  if (answer < 0) return cudaErrorNotSupported;
  *value = static_cast<int>(answer);
  return cudaSuccess;
}
// Properties that are not in the table are 0, since nobody knows which of them the launcher reads.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  const auto fill = [](auto* property, cudaDeviceAttr attribute) {
    const std::int64_t answer = device->ask(flashcore_of_device, nullptr, attribute, 0);
    if (answer > 0) *property = static_cast<std::remove_pointer_t<decltype(property)>>(answer);
  };
  fill(&p->sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
  fill(&p->sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  fill(&p->sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  fill(&p->reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
  fill(&p->regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
  fill(&p->regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
  fill(&p->warpSize, cudaDevAttrWarpSize);
  fill(&p->maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
  fill(&p->maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
  fill(&p->maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
  fill(&p->maxThreadsDim[0], cudaDevAttrMaxBlockDimX);
  fill(&p->maxThreadsDim[1], cudaDevAttrMaxBlockDimY);
  fill(&p->maxThreadsDim[2], cudaDevAttrMaxBlockDimZ);
  fill(&p->maxGridSize[0], cudaDevAttrMaxGridDimX);
  fill(&p->maxGridSize[1], cudaDevAttrMaxGridDimY);
  fill(&p->maxGridSize[2], cudaDevAttrMaxGridDimZ);
  fill(&p->totalConstMem, cudaDevAttrTotalConstantMemory);
  fill(&p->major, cudaDevAttrComputeCapabilityMajor);
  fill(&p->minor, cudaDevAttrComputeCapabilityMinor);
  fill(&p->multiProcessorCount, cudaDevAttrMultiProcessorCount);
  fill(&p->l2CacheSize, cudaDevAttrL2CacheSize);
  fill(&p->concurrentKernels, cudaDevAttrConcurrentKernels);
  fill(&p->unifiedAddressing, cudaDevAttrUnifiedAddressing);
  fill(&p->cooperativeLaunch, cudaDevAttrCooperativeLaunch);
  fill(&p->clusterLaunch, cudaDevAttrClusterLaunch);
  fill(&p->memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported);
  return cudaSuccess;
}

// --- kernels

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const auto name = names().find(kernel);
  if (name == names().end()) return unknown("cudaFuncSetAttribute of a kernel that no object registered");
  return static_cast<cudaError_t>(device->set_attribute(name->second.c_str(), attribute, value));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* kernel) {
  std::int64_t values[5];
  for (int i = 0; i < 5; ++i) {
    values[i] = ask(flashcore_of_kernel, kernel, i, 0, "cudaFuncGetAttributes");
    if (values[i] < 0) return cudaErrorNotSupported;
  }
  std::memset(a, 0, sizeof *a);
  a->sharedSizeBytes = values[0];
  a->localSizeBytes = values[1];
  a->maxThreadsPerBlock = static_cast<int>(values[2]);
  a->numRegs = static_cast<int>(values[3]);
  a->maxDynamicSharedSizeBytes = static_cast<int>(values[4]);
  const auto part = [](cudaDeviceAttr attribute) { return device->ask(flashcore_of_device, nullptr, attribute, 0); };
  a->binaryVersion = static_cast<int>(10 * part(cudaDevAttrComputeCapabilityMajor) + part(cudaDevAttrComputeCapabilityMinor));
  a->ptxVersion = a->binaryVersion;
  a->preferredShmemCarveout = -1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   std::size_t smem, unsigned) {
  const std::int64_t answer =
      ask(flashcore_blocks_per_sm, kernel, threads, smem, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  if (answer < 0) return cudaErrorNotSupported;
  *blocks = static_cast<int>(answer);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, smem, 0);
}
// Only the driver knows how it places clusters.
cudaError_t cudaOccupancyMaxActiveClusters(int*, const void*, const cudaLaunchConfig_t*) {
  return unknown("cudaOccupancyMaxActiveClusters");
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int*, const void*, const cudaLaunchConfig_t*) {
  return unknown("cudaOccupancyMaxPotentialClusterSize");
}

// --- torch's current stream, which is the given one

struct flashcore_torch_stream {
  std::int64_t device, id;
};
// c10::cuda::getCurrentCUDAStream(signed char) and c10::cuda::CUDAStream::stream() const
flashcore_torch_stream _ZN3c104cuda20getCurrentCUDAStreamEa(signed char) { return {1, 1}; }
cudaStream_t _ZNK3c104cuda10CUDAStream6streamEv(const flashcore_torch_stream* stream) {
  return stream->id == 1 ? reinterpret_cast<cudaStream_t>(&the_stream) : nullptr;
}

// --- tensor maps, which need the driver: their content is not part of a plan

int cuTensorMapEncodeTiled() { return 0; }
int cuTensorMapEncodeIm2col() { return 0; }

cudaError_t flashcore_entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* result) {
  if (std::strncmp(symbol, "cuTensorMapEncode", 17) != 0) {
    return unknown((message = std::string("cudaGetDriverEntryPoint of ") + symbol).c_str());
  }
  *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
FLASHCORE_CALL(cudaGetDriverEntryPoint,
               (const char* symbol, void** function, unsigned long long, cudaDriverEntryPointQueryResult* result),
               return flashcore_entry_point(symbol, function, result);)
FLASHCORE_CALL(cudaGetDriverEntryPointByVersion,
               (const char* symbol, void** function, unsigned, unsigned long long,
                cudaDriverEntryPointQueryResult* result),
               return flashcore_entry_point(symbol, function, result);)
}
