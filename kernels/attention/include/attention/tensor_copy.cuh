// Bulk tensor copies: one thread requests a whole tile, and a barrier signals its arrival (sm_90).
//
// The host describes a [heads, S, 64] tensor once per launch (a tensor map, a kernel parameter); the copy engine
// computes addresses, applies swizzle.cuh's layout (Swizzled), and writes zeros for rows past a head's end. The
// zeros count as arrived bytes: a tile always has the same number of bytes.
#pragma once

#include <attention/barrier.cuh>
#include <attention/head.cuh>
#include <attention/shared_memory.cuh>

#include <cuda.h>

#include <cstdint>

namespace attention {

constexpr int kRowBytes = kHeadDim * 2;

// Host: [B·H, S, 64] halves, copied in tiles of `rows` rows.
inline cudaError_t describe(CUtensorMap& map, const void* tensor, const flashcore::Shape& s, int rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t size[] = {kHeadDim, static_cast<cuuint64_t>(s.S), static_cast<cuuint64_t>(s.B * s.H)};
  const cuuint64_t stride[] = {kRowBytes, static_cast<cuuint64_t>(s.S) * kRowBytes};
  const cuuint32_t tile[] = {kHeadDim, static_cast<cuuint32_t>(rows), 1};
  const cuuint32_t step[] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(tensor), size, stride, tile, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Prefetches a tensor map, which the copy engine reads before it can start.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Makes barriers that this thread has initialized visible to the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The one arrival that the barrier's phase expects, and the bytes expected in addition.
__device__ __forceinline__ void arrive_expecting(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Copies rows first_row, … of a head into a tile that starts at a multiple of 1,024 bytes.
__device__ __forceinline__ void copy_tile(half* tile, const CUtensorMap& map, int first_row, int head,
                                          Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      ::"r"(shared_address(tile)), "l"(&map), "r"(0), "r"(first_row), "r"(head), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace attention
