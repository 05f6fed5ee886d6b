// The spacer of the difference method, and empty kernels with and without clusters, to know what a launch costs.
#include <cuda_runtime.h>

__global__ void spin(int cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

__global__ void __launch_bounds__(1024, 1) nothing(unsigned* out) {
  if (out != nullptr) out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
}

extern "C" int spacer(int blocks, int threads, int cycles, void* stream) {
  spin<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(cycles);
  return cudaGetLastError();
}

extern "C" int empty(int blocks, int threads, int shared, int cluster, void* out, void* stream) {
  cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(threads);
  launch.dynamicSmemBytes = shared;
  launch.stream = static_cast<cudaStream_t>(stream);
  launch.attrs = &attribute;
  if (cluster > 0) {
    launch.numAttrs = 1;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelEx(&launch, nothing, static_cast<unsigned*>(out));
}
