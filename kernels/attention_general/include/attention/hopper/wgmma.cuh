// Warpgroup products (wgmma): descriptors of operands in shared memory, and ordering.
//
// Operands are panels: rows of 128 bytes (64 elements) with the 128-byte swizzle, in groups of eight rows, 1,024 bytes,
// to which panels are aligned. A wider matrix is several panels. sm_90a only.
#pragma once

#include <attention/hopper/element.cuh>
#include <attention/hopper/wgmma_shapes.cuh>

namespace hopper {

constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelGroupBytes = 8 * kPanelRowBytes;

// Bits 0-13: address / 16; 16-29: leading offset / 16; 32-45: distance between groups of eight rows / 16; 62-63: 1 for
// the 128-byte swizzle. Adding n to a descriptor advances it by 16 n bytes. In a cluster the upper bits of an address
// are the block's rank, which would be added to the leading offset, so they are masked.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading_bytes) {
  constexpr uint64_t kFixed = (1ull << 62) | (static_cast<uint64_t>(kPanelGroupBytes / 16) << 32);
  return kFixed | (static_cast<uint64_t>(leading_bytes / 16) << 16) | (address & 0x3ffff) >> 4;
}

// Depth along the panel's row (Q, K): the leading offset is not used.
__device__ __forceinline__ uint64_t rows_descriptor(uint32_t address) { return descriptor(address, 16); }

// Depth down the panel (V, columns of the result along the row): the leading offset is the distance between panels.
__device__ __forceinline__ uint64_t columns_descriptor(uint32_t address, uint32_t panel_bytes) {
  return descriptor(address, panel_bytes);
}

// Before the first product that uses registers written by ordinary instructions.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses to these accumulators across this point: it does not know that a product
// continues after the instruction that starts it.
template <int kCount>
__device__ __forceinline__ void pin(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void pin(uint32_t (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

}  // namespace hopper
