// Registers: moved between warpgroups, packed, exchanged between lanes, loaded from swizzled shared memory.
#pragma once

#include <attention/hopper/element.cuh>

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace hopper {

constexpr uint32_t kAllLanes = 0xffffffffu;

// By whole warpgroups. Registers that one releases can be allocated by another.
template <int kCount>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// True in one lane of a full warp, without keeping the lane's number in a register.
__device__ __forceinline__ bool elected() {
  uint32_t yes;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(yes));
  return yes;
}

// Two elements in one register, `low` first.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t packed;
#if ELEMENT_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
  return packed;
}

// Four lanes with four words each: word i of lane j becomes word j of lane i.
__device__ __forceinline__ void transpose_quad(uint32_t (&w)[4], int lane) {
  const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(kAllLanes, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(kAllLanes, upper ? w[i] : w[i + 2], 2);
    (upper ? w[i] : w[i + 2]) = got;
  }
}

// A 16 × 16 piece of a swizzled panel as an A operand: rows from `address`'s (a multiple of 16 below the panel's
// start), 16-byte chunks `chunk` and `chunk + 1`.
__device__ __forceinline__ void load_operand(uint32_t (&a)[4], uint32_t address, int chunk, int lane) {
  const int row = lane % 16;
  const uint32_t at = address + row * 128 + (((chunk + lane / 16) ^ (row % 8)) * 16);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at)
               : "memory");
}

}  // namespace hopper
