// Host: the tensor descriptions for bulk tensor copies.
#pragma once

#include <attention/hopper/wgmma.cuh>

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hopper {

// [batches, heads, rows, columns] with strides in elements (1 for columns, multiples of 8 for the others), copied in
// boxes of `box_rows` rows and 64 columns, the width of the 128-byte swizzle. The driver's function is looked up at
// run time, so nothing is linked against it.
inline cudaError_t describe(CUtensorMap& map, const void* tensor, const std::int64_t (&strides)[4], std::int64_t batches,
                            std::int64_t heads, std::int64_t rows, std::int64_t columns, int box_rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto u64 = [](std::int64_t x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t size[] = {u64(columns), u64(rows), u64(heads), u64(batches)};
  // A dimension with one element may have any stride, but the driver refuses some.
  const auto bytes = [&](int i) { return u64((size[3 - i] > 1 ? strides[i] : columns) * 2); };
  const cuuint64_t stride[] = {bytes(2), bytes(1), bytes(0)};
  const cuuint32_t box[] = {kPanelColumns, static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t step[] = {1, 1, 1, 1};
  constexpr CUtensorMapDataType kType =
      ELEMENT_BF16 != 0 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result =
      encode(&map, kType, 4, const_cast<void*>(tensor), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace hopper
