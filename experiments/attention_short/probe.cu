// How fast tiles come out of L2: each block asks for `chunks` tiles and notes when each has come, in clocks since
// the first was asked for. Ways: 0 bulk tensor copies; 1 the same, multicast in clusters of 2, each block half a tile;
// 2 bulk copies without a map; 3 cp.async by all threads.
#include "ptx.cuh"

using namespace ptx;

constexpr int kMost = 32;

__global__ void __launch_bounds__(256, 1)
    arrivals(const __grid_constant__ CUtensorMap map, const half* data, unsigned* out, int rows, int chunks, int sharing,
             int rotate, int way, int warps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ unsigned long long bars[kMost];
  const std::uint32_t base = shared_address(memory);
  const std::uint32_t bar = shared_address(bars);
  const int rank = way == 1 ? cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < chunks; ++i) init_barrier(bar + 8 * i, way == 3 ? 256 : 1);
    publish_barriers();
    prefetch_map(map);
  }
  __syncthreads();
  if (way == 1) {
    cluster_arrive_relaxed();
    cluster_wait();
  }
  const int head = blockIdx.x / sharing;
  const int tile = blockIdx.x % sharing;
  const int bytes = rows * 128;
  unsigned begin;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
  const auto place = [&](int i) { return rotate ? (i + tile * chunks / sharing) % chunks : i; };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (way == 3) {
    for (int i = 0; i < chunks; ++i) {
      const half* from = data + (static_cast<std::size_t>(head) * chunks + place(i)) * rows * 64;
      for (int e = threadIdx.x; e < bytes / 16; e += 256) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + i * bytes + e * 16), "l"(from + e * 8) : "memory");
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar + 8 * i) : "memory");
    }
  } else if (lane == 0 && warp < warps) {
    for (int i = warp; i < chunks; i += warps) {
      arrive_expecting(bar + 8 * i, bytes);
      const int from = place(i) * rows;
      if (way == 0) copy_tile(base + i * bytes, map, 0, from, head, bar + 8 * i);
      if (way == 1) copy_tile_to(base + i * bytes + rank * bytes / 2, map, 0, from + rank * rows / 2, head, bar + 8 * i, 3);
      if (way == 2) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         base + i * bytes),
                     "l"(data + (static_cast<std::size_t>(head) * chunks * rows + from) * 64), "r"(bytes), "r"(bar + 8 * i)
                     : "memory");
      }
    }
  }
  unsigned now, issued;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(issued)::"memory");
  if (warp == 7) {
    for (int i = 0; i < chunks; ++i) {
      wait_cluster(bar + 8 * i, 0);
      asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
      if (lane == 0) out[blockIdx.x * (kMost + 1) + i] = now - begin;
    }
  }
  if (threadIdx.x == 0) out[blockIdx.x * (kMost + 1) + kMost] = issued - begin;
  __syncthreads();
  if (way == 1) {
    cluster_arrive_relaxed();
    cluster_wait();
  }
}

extern "C" int probe(const void* data, void* out, int blocks, int rows, int chunks, int sharing, int rotate, int way,
                     int warps, int swizzle, int promotion, void* stream) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
  CUtensorMap map;
  const cuuint64_t size[] = {64, static_cast<cuuint64_t>(rows) * chunks, static_cast<cuuint64_t>((blocks + sharing - 1) / sharing)};
  const cuuint64_t stride[] = {128, static_cast<cuuint64_t>(rows) * chunks * 128};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(way == 1 ? rows / 2 : rows), 1};
  const cuuint32_t step[] = {1, 1, 1};
  if (reinterpret_cast<Encode>(found)(
          &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(data), size, stride, box, step,
          CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
          promotion == 0 ? CU_TENSOR_MAP_L2_PROMOTION_NONE : promotion == 1 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    return -1;
  }
  cudaFuncSetAttribute(arrivals, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024);
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(256);
  launch.dynamicSmemBytes = rows * 128 * chunks;
  launch.stream = static_cast<cudaStream_t>(stream);
  launch.attrs = &attribute;
  if (way == 1) {
    launch.numAttrs = 1;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 2;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelEx(&launch, arrivals, map, static_cast<const half*>(data), static_cast<unsigned*>(out), rows, chunks,
                            sharing, rotate, way, warps);
}
