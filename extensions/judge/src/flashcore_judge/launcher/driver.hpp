// The CUDA driver's functions that the launcher calls, looked up in libcuda when it starts, with the layouts of cuda.h.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace flashcore {

using Address = unsigned long long;  // CUdeviceptr
using Size = std::size_t;
using Handle = void*;  // a context, module, function, stream, event or graph

struct LaunchAttribute {
  unsigned id, pad;
  alignas(8) unsigned value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned count;
};
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};
enum : unsigned { kCooperative = 2, kCluster = 4, kProgrammatic = 6 };               // CUlaunchAttributeID
enum : int { kMostThreads = 0, kMostDynamicShared = 8, kNonPortableCluster = 14 };   // CUfunction_attribute
enum : int { kSms = 16, kL2Bytes = 38, kMajor = 75, kMinor = 76 };                   // CUdevice_attribute
enum : int { kPtx = 1 };                                                             // CUjitInputType
enum : int { kOutOfMemory = 2 };                                                     // CUresult
enum : unsigned { kNonBlocking = 1, kRelaxedCapture = 2, kExternal = 1 };            // of streams, captures, events

// The name, the suffix of the version that is used, and the parameters' types.
#define FLASHCORE_DRIVER(F)                                                                                          \
  F(cuGetErrorName, "", int, const char**) F(cuInit, "", unsigned) F(cuDriverGetVersion, "", int*)                   \
  F(cuDeviceGet, "", int*, int)                                                                                      \
  F(cuDeviceGetName, "", char*, int, int) F(cuDeviceGetUuid, "_v2", unsigned char*, int)                             \
  F(cuDeviceGetAttribute, "", int*, int, int) F(cuDevicePrimaryCtxRetain, "", Handle*, int)                          \
  F(cuCtxSetCurrent, "", Handle) F(cuCtxResetPersistingL2Cache, "")                                                  \
  F(cuModuleLoadData, "", Handle*, const void*) F(cuModuleGetFunction, "", Handle*, Handle, const char*)             \
  F(cuFuncGetAttribute, "", int*, int, Handle) F(cuFuncSetAttribute, "", Handle, int, int)                           \
  F(cuFuncGetParamInfo, "", Handle, Size, Size*, Size*) F(cuMemAlloc, "_v2", Address*, Size)                         \
  F(cuMemFree, "_v2", Address) F(cuMemAllocHost, "_v2", void**, Size)                                                \
  F(cuMemcpyHtoD, "_v2", Address, const void*, Size) F(cuMemcpyDtoH, "_v2", void*, Address, Size)                    \
  F(cuMemsetD8, "_v2", Address, unsigned char, Size)                                                                 \
  F(cuStreamCreate, "", Handle*, unsigned) F(cuStreamSynchronize, "", Handle)                                        \
  F(cuStreamBeginCapture, "_v2", Handle, unsigned) F(cuStreamEndCapture, "", Handle, Handle*)                        \
  F(cuEventCreate, "", Handle*, unsigned) F(cuEventRecord, "", Handle, Handle) F(cuEventSynchronize, "", Handle)     \
  F(cuEventRecordWithFlags, "", Handle, Handle, unsigned) F(cuEventElapsedTime, "", float*, Handle, Handle)          \
  F(cuGraphInstantiateWithFlags, "", Handle*, Handle, unsigned long long) F(cuGraphDestroy, "", Handle)              \
  F(cuGraphLaunch, "", Handle, Handle) F(cuModuleGetGlobal, "_v2", Address*, Size*, Handle, const char*) F(cuMemsetD8Async, "", Address, unsigned char, Size, Handle)     \
  F(cuGraphUpload, "", Handle, Handle) F(cuGraphExecDestroy, "", Handle) F(cuLaunchKernelEx, "", const LaunchConfig*, Handle, void**, void**)          \
  F(cuLinkCreate, "_v2", unsigned, int*, void**, Handle*) F(cuLinkComplete, "", Handle, void**, Size*)               \
  F(cuLinkAddData, "_v2", Handle, int, void*, Size, const char*, unsigned, int*, void**) F(cuLinkDestroy, "", Handle) \
  F(cuTensorMapEncodeTiled, "", TensorMap*, unsigned, unsigned, void*, const unsigned long long*,                    \
    const unsigned long long*, const unsigned*, const unsigned*, unsigned, unsigned, unsigned, unsigned)

// The machine lacks a driver, a GPU or memory.
struct Incapable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A call of the driver failed, with an error of that name.
struct CudaError : std::runtime_error {
  CudaError(const char* failed, const char* error) : std::runtime_error(failed), name(error ? error : "unknown") {}
  std::string name;
};

struct Driver {
#define FLASHCORE_MEMBER(name, version, ...) int (*name)(__VA_ARGS__) = nullptr;
  FLASHCORE_DRIVER(FLASHCORE_MEMBER)

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw Incapable(std::string("expected CUDA's driver: ") + dlerror());
#define FLASHCORE_FIND(name, version, ...)                                 \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name version));  \
  if (name == nullptr) throw Incapable("expected a driver with " #name version ", of CUDA 12.4 or newer");
    FLASHCORE_DRIVER(FLASHCORE_FIND)
  }

  void check(const char* call, int code) const {
    const char* name = nullptr;
    if (code != 0) cuGetErrorName(code, &name);
    if (code == kOutOfMemory) throw Incapable(std::string("expected GPU memory: ") + call);
    if (code != 0) throw CudaError(call, name);
  }
};

// Calls a function of the Driver in scope that is named `driver`; throws a CudaError if it fails.
#define CUDA(function, ...) driver.check(#function, driver.function(__VA_ARGS__))

}  // namespace flashcore
