// Instead of <cuda_runtime.h>, which nvcc puts before every source: what the tests' kernels call, and no more.
//
// To read the whole of it, four times for each source and arch, takes two thirds of the time of a small compilation.
// Tests of sources that call more compile without this file (`whole_cuda_headers` in conftest.py). Its folder is
// called as it is so that a build counts it among the toolkit's files and not among the suite's.
#ifdef __CUDACC__
#ifndef __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__

#include <crt/host_config.h>

#include <builtin_types.h>
#include <crt/host_defines.h>
#include <cuda_runtime_api.h>
#include <device_launch_parameters.h>

extern "C" {
__device__ __device_builtin__ void __syncthreads();
__device__ __device_builtin__ float exp2f(float);
__device__ __device_builtin__ float expf(float);
__device__ __device_builtin__ float fmaf(float, float, float);
__device__ __device_builtin__ float fmaxf(float, float);
__device__ __device_builtin__ float nanf(const char*);

// What nvcc makes of a kernel's launch calls these.
__host__ __device__ unsigned __cudaPushCallConfiguration(dim3, dim3 = 1, size_t = 0, struct CUstream_st* = 0);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

static __host__ __device__ inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static __device__ inline float __shfl_xor_sync(unsigned mask, float value, int lanes) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, %2;" : "+f"(value) : "r"(lanes), "r"(mask));
  return value;
}

static inline cudaError_t __cudaLaunchKernel_helper(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                                    size_t smem, cudaStream_t stream) {
  return __cudaLaunchKernel(kernel, grid, block, arguments, smem, stream);
}

template <typename... Params, typename... Given>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                                             Given&&... given) {
  return [&](Params... params) {
    void* pointers[] = {&params...};
    return cudaLaunchKernelExC(config, reinterpret_cast<const void*>(kernel), pointers);
  }(static_cast<Given&&>(given)...);
}

template <typename Kernel>
static inline __host__ cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel kernel, int threads,
                                                                        size_t smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, reinterpret_cast<const void*>(kernel), threads,
                                                                smem, cudaOccupancyDefault);
}

#endif
#else
// The compiler of nvcc's host code has read all this; its header of launches must not include the rest.
#define __COMMON_FUNCTIONS_H__
#endif
