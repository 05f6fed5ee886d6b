// wgmma: a warpgroup's 64 × 256 product, both operands in shared memory, accumulators in registers.
//
// Operands are K-major with the 128-byte swizzle: rows of 128 bytes in groups of eight, 1,024 bytes, and within a
// row the 16-byte chunk c is at c ^ (row mod 8). sm_90a only.
#pragma once

#include <roofs/matrix.cuh>

namespace roofs {

constexpr int kRowBytes = 128;              // of an operand's panel: the swizzle's span
constexpr int kGroupBytes = 8 * kRowBytes;  // the swizzle's period, to which panels are aligned
constexpr int kStepsOfRow = kRowBytes / kStepBytes;
constexpr int kTileRows = 64;
constexpr int kTileColumns = 256;
constexpr int kAccumulators = kTileRows * kTileColumns / 128;  // per thread of the warpgroup

// The byte offset of a row's 16-byte chunk in a panel.
__device__ inline int swizzled(int row, int chunk) { return row * kRowBytes + ((chunk ^ (row % 8)) * 16); }

// The descriptor of a panel that starts at shared address `address`; a later step of the row is at a larger byte
// offset. Bits 0-13: address / 16; 16-29: leading offset, unused with this swizzle, by convention 1; 32-45: distance
// between groups of eight rows / 16; 62-63: 1 for the 128-byte swizzle.
__device__ inline uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kFixed = (1ull << 62) | (static_cast<uint64_t>(kGroupBytes / 16) << 32) | (1ull << 16);
  return kFixed | ((address & 0x3ffffu) >> 4);
}

__device__ inline void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ inline void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Makes ordinary stores to shared memory visible to the tensor cores; a barrier must follow.
__device__ inline void fence_for_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// d = a · b + d, or a · b alone if `fresh`. Asynchronous: d must not be accessed before the wait.
__device__ inline void multiply_async(float (&d)[kAccumulators], uint64_t a, uint64_t b, bool fresh) {
  asm volatile(
      "{.reg .pred accumulate; setp.ne.b32 accumulate, %130, 0; "
      "wgmma.mma_async.sync.aligned.m64n256" ROOFS_DEPTH "." ROOFS_TYPES " {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
#if ELEMENT == ROOFS_FP8
      "%128, %129, accumulate, 1, 1;}"  // 8-bit operands are always K-major
#else
      "%128, %129, accumulate, 1, 1, 0, 0;}"
#endif
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(fresh ? 0 : 1));
}

}  // namespace roofs
