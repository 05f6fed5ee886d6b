// K and V as 8-bit codes: 64 bytes per row, and one scale per row.
//
// A format converts a row, divided by its scale, to codes, and two codes of a register to two halves. Those
// halves are the codes divided by a power of two, kUnit, by which the row's scale is multiplied: the exact
// dequantized value, and near 1, so that neither they nor the weights that include V's scale exceed the
// range of a half.
//
//   U8   x / s rounded to an integer, plus 128; s = max |row| / 127
//   Fp8  x / s rounded to e4m3;                 s = max |row| / 448
//
// Both are decoded on the integer and half pipes of any arch: e4m3 shifted into a half's bits is its value
// times 2^-8, including subnormals, and a byte under the bits of 1024 is 1024 + code.
#pragma once

#include <attention/async_copy.cuh>
#include <attention/head.cuh>
#include <cuda_fp8.h>

#include <cstdint>

namespace attention {

using Code = std::uint8_t;

struct U8 {
  static constexpr float kLargest = 127.0f;
  static constexpr float kUnit = 64.0f;

  static __device__ __forceinline__ unsigned encode(float x) {
    return static_cast<unsigned>(min(127, max(-127, __float2int_rn(x))) + 128);
  }
  // Bytes kFirst and kSecond of `codes` as a pair of halves.
  template <unsigned kFirst, unsigned kSecond>
  static __device__ __forceinline__ unsigned decode(unsigned codes) {
    const unsigned bits = __byte_perm(codes, 0x64646464u, kFirst | 0x4040u | kSecond << 8);  // 1024 + code
    const half2 unit = __float2half2_rn(1.0f / kUnit);
    const half2 zero = __float2half2_rn(-(1024.0f + 128.0f) / kUnit);
    const half2 x = __hfma2(*reinterpret_cast<const half2*>(&bits), unit, zero);  // exact
    return *reinterpret_cast<const unsigned*>(&x);
  }
};

struct Fp8 {
  static constexpr float kLargest = 448.0f;
  static constexpr float kUnit = 256.0f;

  static __device__ __forceinline__ unsigned encode(float x) {
    return __nv_cvt_float_to_fp8(fminf(kLargest, fmaxf(-kLargest, x)), __NV_SATFINITE, __NV_E4M3);
  }
  template <unsigned kFirst, unsigned kSecond>
  static __device__ __forceinline__ unsigned decode(unsigned codes) {
    const unsigned bits = __byte_perm(codes, 0u, 0x0404u | kFirst << 4 | kSecond << 12);  // in the upper bytes
    return (bits & 0x80008000u) | ((bits & 0x7f007f00u) >> 1);
  }
};

// A tile of codes in shared memory: rows of four 16-byte pieces, two rows per 32 banks. Piece p of row r is
// at position p XOR (r / 2 mod 4): a column of pieces in eight rows uses all banks once.
constexpr int kCodePieces = kHeadDim / 16;
__device__ __forceinline__ int code_at(int row, int piece) {
  return row * kHeadDim + (piece ^ (row / 2 % kCodePieces)) * 16;
}

// Copies rows [0, valid) asynchronously; the rest becomes code 0, whatever its value.
template <int kRows, int kThreads>
__device__ __forceinline__ void load_codes_async(Code* tile, const Code* source, int valid) {
  static_assert(kRows * kCodePieces % kThreads == 0, "all threads copy equally many pieces");
#pragma unroll
  for (int n = 0; n < kRows * kCodePieces / kThreads; ++n) {
    const int i = threadIdx.x + n * kThreads;
    const int row = i / kCodePieces;
    const int piece = i % kCodePieces;
    const bool exists = row < valid;
    copy16_async(reinterpret_cast<half*>(tile + code_at(row, piece)),
                 reinterpret_cast<const half*>(source + (exists ? row * kHeadDim : 0) + piece * 16), exists);
  }
}

}  // namespace attention
