// fragment_introspect: determines the positions of a WMMA accumulator's elements on this GPU. Not an
// attention kernel: one warp, the problem `fragment`.
//
// Two methods with the same result, which is checked against attention/fragment_table.cuh:
//   table  a tile whose element (r, c) is 16·r + c, loaded as an accumulator: every slot has its position
//   owner  an accumulator whose slots are numbered 8·lane + slot, stored: every element has its owner
//
// From: FlashCore design 002, phase 1, which uses only the second method. It stores the float accumulator
// to a half*, which WMMA does not allow; here the tile is fp32.

#include <attention/wmma.cuh>
#include <flashcore/problem.h>

namespace {

using namespace attention;

constexpr int kSlotsOfLane = 8;

}  // namespace

extern "C" __global__ void __launch_bounds__(32)
    introspect_kernel(const float* __restrict__ tile, int* __restrict__ table, int* __restrict__ owner) {
  __shared__ alignas(128) float numbers[kMma * kMma];
  const int lane = threadIdx.x;
  Accumulator c;
  static_assert(decltype(c)::num_elements == kSlotsOfLane, "32 lanes hold 256 elements, each once");

  for (int i = lane; i < kMma * kMma; i += 32) numbers[i] = tile[i];
  __syncwarp();
  nvcuda::wmma::load_matrix_sync(c, numbers, kMma, nvcuda::wmma::mem_row_major);
  for (int slot = 0; slot < kSlotsOfLane; ++slot) {
    const int element = static_cast<int>(c.x[slot]);
    table[(lane * kSlotsOfLane + slot) * 2] = element / kMma;
    table[(lane * kSlotsOfLane + slot) * 2 + 1] = element % kMma;
    c.x[slot] = static_cast<float>(lane * kSlotsOfLane + slot);
  }
  __syncwarp();  // the tile has been read
  nvcuda::wmma::store_matrix_sync(numbers, c, kMma, nvcuda::wmma::mem_row_major);
  __syncwarp();  // it is complete
  for (int i = lane; i < kMma * kMma; i += 32) owner[i] = static_cast<int>(numbers[i]);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if (s.SIDE != kMma || s.LANES != 32 || s.SLOTS != kSlotsOfLane || s.PAIR != 2) {
    p.error = "expected SIDE = 16, LANES = 32, SLOTS = 8, PAIR = 2: the one fragment that there is";
    return p;
  }
  return p.add({"introspect_kernel", dim3(1), dim3(32)});
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], introspect_kernel, stream, static_cast<const float*>(a.tile),
                        static_cast<int*>(a.table), static_cast<int*>(a.owner));
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
