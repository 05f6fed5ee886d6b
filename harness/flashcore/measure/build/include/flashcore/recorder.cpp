// Replaces the CUDA runtime's launch calls and records their arguments. Nothing runs.
//
// Linked before the runtime into a variant's plan library. Calls that are not replaced reach the runtime, which fails
// without a GPU, and the launcher returns that error. nvcc compiles <<<>>> to a pushed configuration and a launch call,
// which differs between releases, so all are replaced. A kernel is identified by its address, which the object registers
// with its name when it is loaded.
#include <cuda_runtime_api.h>
#include <flashcore/launch.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

extern "C" struct flashcore_device {
  std::int32_t major, minor, sms, threads_per_sm, smem_per_block, smem_optin, smem_per_sm;
};

extern "C" {
using flashcore_on_launch = void(const flashcore_launch_record*, void** args);
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
std::vector<flashcore_launch_record> launches;
std::string refused;  // the first query without an answer
flashcore_device device;
flashcore_on_launch* on_launch = nullptr;

cudaError_t refuse(const std::string& what) {
  if (refused.empty()) refused = what;
  return cudaErrorNotSupported;
}

cudaError_t launched(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                     const cudaLaunchAttribute* attributes = nullptr, unsigned count = 0, bool cooperative = false) {
  const auto name = names().find(kernel);
  if (name == names().end()) return refuse("launches a kernel that no object registered");
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
  launches.push_back(r);
  if (on_launch != nullptr) on_launch(&r, args);
  return cudaSuccess;
}

}  // namespace

extern "C" {

void flashcore_record(const flashcore_device* given) {
  device = *given;
  launches.clear();
  pushed.clear();
  refused.clear();
}

int flashcore_recorded(flashcore_launch_record* out, int capacity, const char** error) {
  if (!refused.empty()) {
    refused = "its launcher " + refused + ", which cannot be answered without a GPU: declare its plan";
    *error = refused.c_str();
    return -1;
  }
  if (launches.size() > static_cast<std::size_t>(capacity)) {
    *error = "a plan holds at most 32 launches";
    return -1;
  }
  std::copy(launches.begin(), launches.end(), out);
  return static_cast<int>(launches.size());
}

// Calls the launcher, and `called` at each launch with the kernel's arguments. Returns an error, or null.
const char* flashcore_record_arguments(const void* args, const std::int64_t* dims, void* workspace,
                                       const flashcore_device* given, flashcore_on_launch* called) {
  const char* error = nullptr;
  flashcore_record(given);
  on_launch = called;
  const int code = flashcore_launch(args, dims, workspace, nullptr, &error);
  on_launch = nullptr;
  if (!refused.empty()) flashcore_recorded(nullptr, 0, &error);
  return error != nullptr || code == 0 ? error : flashcore_error_string(code);
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
char __cudaInitModule(void**) { return 0; }

// --- launches

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t smem, cudaStream_t stream) {
  pushed.push_back({grid, block, smem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* smem, void* stream) {
  const Configuration last = pushed.back();
  pushed.pop_back();
  *grid = last.grid;
  *block = last.block;
  *smem = last.smem;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* address) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(address));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                               cudaStream_t) {
  return launched(kernel, grid, block, args, smem);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                                    cudaStream_t) {
  return launched(kernel, grid, block, args, smem);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t) {
  return launched(kernel, grid, block, args, smem);
}
cudaError_t cudaLaunchKernel_ptsz(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                                  cudaStream_t) {
  return launched(kernel, grid, block, args, smem);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* kernel, void** args) {
  return launched(kernel, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->attrs, c->numAttrs);
}
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* c, const void* kernel, void** args) {
  return launched(kernel, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->attrs, c->numAttrs);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                                        cudaStream_t) {
  return launched(kernel, grid, block, args, smem, nullptr, 0, true);
}
cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t smem,
                                             cudaStream_t) {
  return launched(kernel, grid, block, args, smem, nullptr, 0, true);
}

// --- other calls of a launcher

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemsetAsync_ptsz(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync_ptsz(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return refused.empty() ? cudaSuccess : cudaErrorNotSupported; }
cudaError_t cudaPeekAtLastError() { return cudaGetLastError(); }

// --- device queries

cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = device.sms; break;
    case cudaDevAttrComputeCapabilityMajor: *value = device.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device.minor; return cudaSuccess;  // 0 is one
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = device.smem_per_block; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device.smem_optin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = device.smem_per_sm; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = device.threads_per_sm; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    default: return refuse("queries the device attribute " + std::to_string(static_cast<int>(attribute)));
  }
  if (*value <= 0) return refuse("queries the device attribute " + std::to_string(static_cast<int>(attribute)));
  return cudaSuccess;
}
// Refused: it is unknown which properties the launcher reads, and some have no answer.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) { return refuse("calls cudaGetDeviceProperties"); }

#define FLASHCORE_REFUSE(name, ...) \
  cudaError_t name(__VA_ARGS__) { return refuse("calls " #name); }
FLASHCORE_REFUSE(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int*, const void*, int, std::size_t)
FLASHCORE_REFUSE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int*, const void*, int, std::size_t, unsigned)
FLASHCORE_REFUSE(cudaOccupancyMaxActiveClusters, int*, const void*, const cudaLaunchConfig_t*)
FLASHCORE_REFUSE(cudaFuncGetAttributes, cudaFuncAttributes*, const void*)
FLASHCORE_REFUSE(cudaMalloc, void**, std::size_t)
FLASHCORE_REFUSE(cudaMallocAsync, void**, std::size_t, cudaStream_t)
FLASHCORE_REFUSE(cudaFree, void*)
FLASHCORE_REFUSE(cudaDeviceSynchronize)
FLASHCORE_REFUSE(cudaStreamSynchronize, cudaStream_t)
}
