// Rows and columns of a WMMA accumulator's slots, from the introspected table.
//
// WMMA does not specify which lane has which element, so the table is measured, not derived. A table indexed
// by the lane would be read from memory; a static_assert shows that it has a closed form, which the kernels
// use: lane / 4 is the row, slots 2, 3, 6, 7 are 8 rows down, slots 4 to 7 are 8 columns to the right.
// A machine with another table breaks the build, not the answers.
#pragma once

#include <attention/fragment_table.cuh>

#include <cuda_runtime.h>

namespace attention {

constexpr int kSlots = 8;

__host__ __device__ constexpr int slot_half(int slot) { return slot / 2 % 2; }  // 1: 8 rows down
__host__ __device__ constexpr int fragment_row(int lane, int slot) { return lane / 4 + slot_half(slot) * 8; }
__host__ __device__ constexpr int fragment_col(int lane, int slot) { return lane % 4 * 2 + slot % 2 + slot / 4 * 8; }

constexpr bool table_is_closed_form() {
  for (int lane = 0; lane < 32; ++lane) {
    for (int slot = 0; slot < kSlots; ++slot) {
      if (kFragmentTable[lane][slot][0] != fragment_row(lane, slot)) return false;
      if (kFragmentTable[lane][slot][1] != fragment_col(lane, slot)) return false;
    }
  }
  return true;
}
static_assert(table_is_closed_form(), "this machine's fragments are laid out differently: fragment.cuh must follow");

// Host: cudaErrorNotSupported on a GPU for which the table was not verified.
inline cudaError_t fragment_table_holds() {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return error;
  for (const int known : kFragmentFoundOn) {
    if (known == major * 10 + minor) return cudaSuccess;
  }
  return cudaErrorNotSupported;
}

}  // namespace attention
