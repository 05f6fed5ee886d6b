#include <flashcore/problem.h>
#include <flashcore/launcher.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace {

__global__ void twice(const float* x, float* out, int n) {
  extern __shared__ float staged[];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    staged[threadIdx.x] = x[i];
    out[i] = 2 * staged[threadIdx.x];
  }
}

__global__ void __launch_bounds__(128) bounded(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}

__global__ void with_static(float* out) {
  __shared__ float some[4096];  // 16 KB
  extern __shared__ float more[];
  some[threadIdx.x] = more[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = some[threadIdx.x ^ 1] + more[threadIdx.x ^ 1];
}

// As public code checks its launches.
void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA error: %s\n", cudaGetErrorString(error));
  std::exit(EXIT_FAILURE);
}

constexpr int KB = 1024;
constexpr auto SMEM = cudaFuncAttributeMaxDynamicSharedMemorySize;

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, void*, cudaStream_t stream) {
  const auto* x = static_cast<const float*>(a.x);
  auto* out = static_cast<float*>(a.out);
  const int n = static_cast<int>(s.N), blocks = (n + 255) / 256;
  static cudaStream_t side = nullptr;
  static cudaEvent_t fork = nullptr, join = nullptr;
  if (side == nullptr) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  }
  int value = 0, sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  cudaLaunchConfig_t config = {};
  config.gridDim = 16;
  config.blockDim = 64;
  config.stream = stream;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {16, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* arguments[] = {&x, &out, const_cast<int*>(&n)};

  switch (a.form) {
    case 0:
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      break;

    // --- launches that work
    case 1:  // falls back where the device has less shared memory
      if (cudaFuncSetAttribute(twice, SMEM, 200 * KB) == cudaSuccess) {
        twice<<<blocks, 256, 200 * KB, stream>>>(x, out, n);
      } else {
        twice<<<blocks, 256, KB, stream>>>(x, out, n);
      }
      break;
    case 2:  // asks what the device has
      cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
      if (cudaError_t error = cudaFuncSetAttribute(twice, SMEM, value)) return error;
      twice<<<blocks, 256, value, stream>>>(x, out, n);
      break;
    case 3:  // as many blocks as run at once
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, twice, 256, 48 * KB);
      twice<<<value * sms, 256, 48 * KB, stream>>>(x, out, n);
      break;
    case 4: {  // the block size that the runtime chooses
      int grid = 0;
      if (cudaError_t error = cudaOccupancyMaxPotentialBlockSize(&grid, &value, bounded)) return error;
      bounded<<<(n + value - 1) / value, value, 0, stream>>>(x, out, n);
      break;
    }
    case 5: {  // the device's and the kernel's properties
      cudaDeviceProp p;
      cudaFuncAttributes f;
      if (cudaError_t error = cudaGetDeviceProperties(&p, 0)) return error;
      if (cudaError_t error = cudaFuncGetAttributes(&f, with_static)) return error;
      if (p.warpSize != 32 || p.major < 8 || f.numRegs <= 0) return cudaErrorUnknown;
      with_static<<<p.multiProcessorCount, f.maxThreadsPerBlock, f.maxDynamicSharedSizeBytes, stream>>>(out);
      break;
    }
    case 6:  // part of the work on another stream, in order
      cudaEventRecord(fork, stream);
      cudaStreamWaitEvent(side, fork, 0);
      twice<<<blocks, 256, KB, side>>>(x, out, n);
      bounded<<<2, 128, 0, stream>>>(x, out, 8);
      cudaEventRecord(join, side);
      cudaStreamWaitEvent(stream, join, 0);
      break;
    case 7: {  // allocates once
      static float* scratch = nullptr;
      if (scratch == nullptr) require(cudaMalloc(&scratch, sizeof(float) * n));
      if (cudaError_t error = cudaMemsetAsync(scratch, 0, sizeof(float) * n, stream)) return error;
      twice<<<blocks, 256, KB, stream>>>(x, scratch, n);
      twice<<<blocks, 256, KB, stream>>>(scratch, out, n);
      break;
    }
    case 8: {  // tries once; a kernel whose attribute no form that runs on a GPU raises for the process
      static bool is_refused = false;
      if (!is_refused) bounded<<<2 * blocks, 128, 100 * KB, stream>>>(x, out, n);
      is_refused = is_refused || cudaGetLastError() != cudaSuccess;
      if (is_refused) bounded<<<2 * blocks, 128, 8 * KB, stream>>>(x, out, n);
      break;
    }
    case 9:  // larger clusters, where there are any
      cudaDeviceGetAttribute(&value, cudaDevAttrClusterLaunch, 0);
      if (!value) {
        twice<<<blocks, 256, KB, stream>>>(x, out, n);
        break;
      }
      if (cudaError_t e = cudaFuncSetAttribute(bounded, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) return e;
      return cudaLaunchKernelEx(&config, bounded, x, out, n);
    case 10: {  // all blocks at once
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, twice, 256, KB);
      return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(twice), dim3(value * sms), dim3(256), arguments, KB,
                                         stream);
    }
    case 11: {  // allocates in the stream's order
      float* scratch = nullptr;
      if (cudaError_t error = cudaMallocAsync(&scratch, sizeof(float) * n, stream)) return error;
      twice<<<blocks, 256, KB, stream>>>(x, scratch, n);
      twice<<<blocks, 256, KB, stream>>>(scratch, out, n);
      return cudaFreeAsync(scratch, stream);
    }

    // --- launches that no GPU of the arch accepts
    case 20:
      twice<<<blocks, 256, 64 * KB, stream>>>(x, out, n);
      break;
    case 21:  // raised too little
      cudaFuncSetAttribute(twice, SMEM, 56 * KB);
      twice<<<blocks, 256, 64 * KB, stream>>>(x, out, n);
      break;
    case 22:  // raised for another kernel
      cudaFuncSetAttribute(bounded, SMEM, 64 * KB);
      twice<<<blocks, 256, 64 * KB, stream>>>(x, out, n);
      break;
    case 23:  // with the kernel's own shared memory
      with_static<<<1, 64, 40 * KB, stream>>>(out);
      break;
    case 24:
      twice<<<0, 256, KB, stream>>>(x, out, n);
      break;
    case 25:  // nobody reads the error
      twice<<<blocks, 2048, KB, stream>>>(x, out, n);
      bounded<<<blocks, 128, 0, stream>>>(x, out, n);
      return cudaSuccess;
    case 26:
      bounded<<<blocks, 256, 0, stream>>>(x, out, n);
      break;
    case 27:  // a cluster of 16 without the attribute
      return cudaLaunchKernelEx(&config, twice, x, out, n);
    case 28:
      return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(twice), dim3(1 << 20), dim3(256), arguments, KB,
                                         stream);
    case 29:  // ends the process
      twice<<<blocks, 256, 64 * KB, stream>>>(x, out, n);
      require(cudaGetLastError());
      break;
    case 30:  // reads the error, and goes on
      twice<<<blocks, 256, 64 * KB, stream>>>(x, out, n);
      if (cudaError_t error = cudaGetLastError()) std::printf("%s\n", cudaGetErrorString(error));
      return cudaSuccess;

    // --- other streams
    case 40:
      twice<<<blocks, 256, KB>>>(x, out, n);
      break;
    case 41:  // not after the given stream's work
      twice<<<blocks, 256, KB, side>>>(x, out, n);
      cudaEventRecord(join, side);
      cudaStreamWaitEvent(stream, join, 0);
      break;
    case 42:
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      return cudaMemsetAsync(out, 0, 4, nullptr);
    case 43:  // nothing waits for it
      cudaEventRecord(fork, stream);
      cudaStreamWaitEvent(side, fork, 0);
      twice<<<blocks, 256, KB, side>>>(x, out, n);
      break;
    case 44:  // the event is recorded too early
      cudaEventRecord(fork, stream);
      cudaStreamWaitEvent(side, fork, 0);
      cudaEventRecord(join, side);
      twice<<<blocks, 256, KB, side>>>(x, out, n);
      cudaStreamWaitEvent(stream, join, 0);
      break;
    case 45:
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      return cudaMemset(out, 0, 4);

    // --- calls
    case 50:
      return cudaSuccess;
    case 51: {
      void* scratch = nullptr;
      if (cudaError_t error = cudaMalloc(&scratch, 1024)) return error;
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      return cudaFree(scratch);
    }
    case 52:
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      return cudaDeviceSynchronize();
    case 53:
      throw std::invalid_argument("expected a multiple of 24");
    case 54:
      return cudaErrorInvalidValue;
    case 55:
      std::printf("no such form\n");
      std::fflush(stdout);
      std::exit(3);
    case 56:  // tries in each call, and reads the error
      bounded<<<2 * blocks, 128, 100 * KB, stream>>>(x, out, n);
      if (cudaGetLastError() != cudaSuccess) bounded<<<2 * blocks, 128, 8 * KB, stream>>>(x, out, n);
      break;

    // --- what only a GPU can answer
    case 60:
      if (cudaOccupancyMaxActiveClusters(&value, bounded, &config) != cudaSuccess) std::exit(1);
      bounded<<<value, 64, 0, stream>>>(x, out, n);
      break;
    case 61:  // unknown to the recorder
      if (cudaError_t error = cudaStreamGetPriority(stream, &value)) return error;
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      break;
    case 62:
      if (cudaError_t error = cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0)) return error;
      twice<<<blocks, 256, KB, stream>>>(x, out, n);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

FLASHCORE_LAUNCHER(launch)
