// Dynamic shared memory, divided into parts at compile time, and shared-memory addresses.
//
// More than 48 KiB per block cannot be static: the launcher requests it (see run() in launch.h), and the
// kernel divides one array. Offsets are bytes; parts start at multiples of 128, so that every 16-byte, WMMA
// (32) and bulk (128) access that is aligned within its part is aligned.
#pragma once

#include <cuda_runtime.h>

namespace attention {

extern __shared__ __align__(128) unsigned char dynamic_shared[];

// The start of the part after one of `bytes` bytes at `offset`.
constexpr int after(int offset, int bytes) { return (offset + bytes + 127) / 128 * 128; }

template <typename T>
__device__ __forceinline__ T* shared_at(int offset) {
  return reinterpret_cast<T*>(dynamic_shared + offset);
}

// The address for shared-memory instructions.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

}  // namespace attention
