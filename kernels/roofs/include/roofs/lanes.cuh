// Common parts of the arithmetic kernels: 512 threads per block, each with a few values in registers.
#pragma once

#include <flashcore/launch.h>

#include <cstdint>

namespace roofs {

constexpr int kLaneThreads = 512;  // one block per SM: four warps for each of its schedulers

inline const char* refuse_other_lanes(std::int64_t threads, std::int64_t values, int expected) {
  if (threads != kLaneThreads) return "THREADS must be 512";
  return values == expected ? nullptr : "VALUES must be what the kernel keeps in registers: 8 for exp2, 16 for others";
}

// The values of thread `own`, in vectors of four.
template <typename Vector, typename Value, int kValues>
__device__ void load_lane(const Vector* from, int own, Value (&v)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; i += 4) {
    const Vector four = from[(static_cast<long long>(own) * kValues + i) / 4];
    v[i] = four.x;
    v[i + 1] = four.y;
    v[i + 2] = four.z;
    v[i + 3] = four.w;
  }
}

template <typename Vector, typename Value, int kValues>
__device__ void store_lane(Vector* to, int own, const Value (&v)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; i += 4) {
    to[(static_cast<long long>(own) * kValues + i) / 4] = Vector{v[i], v[i + 1], v[i + 2], v[i + 3]};
  }
}

}  // namespace roofs
