// ldmatrix: 8 × 8 matrices of 16-bit elements from shared memory into the lanes of a warp.
//
// Four matrices at a time. Lane l gives the address of row l % 8 (16 bytes, 16-byte aligned) of matrix
// l / 8 and receives, of each matrix, elements (l / 4, 2·(l % 4)) and (…, + 1) in one register; with
// .trans those of the transposed matrix, (2·(l % 4), l / 4) and (… + 1, l / 4).
//
// A phase reads one matrix: eight rows of 16 bytes, which use all 32 banks once if the rows start in eight
// different 16-byte columns of the banks. Padding or swizzling ensures that (see swizzle.cuh).
#pragma once

#include <attention/shared_memory.cuh>

namespace attention {

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace attention
