// Strides of a tensor [batch, head, row, column] whose columns are contiguous.
#pragma once

#include <cstdint>

namespace attention {

struct Strides {
  long long batch, head, row;  // elements
};

// From an argument's strides, as passed to the operator.
inline Strides strides_of(const std::int64_t (&of)[4]) { return {of[0], of[1], of[2]}; }

template <typename T>
__device__ __forceinline__ T* place_of(T* tensor, const Strides& strides, int batch, int head, int row) {
  return tensor + batch * strides.batch + head * strides.head + row * strides.row;
}

}  // namespace attention
