// cp.async of 4 bytes, for what is not aligned to 16: through L1 (.ca), the only way of that size.
#pragma once

namespace attention {

// Without `exists` nothing is read and the target becomes 0; the source must be a valid address.
__device__ __forceinline__ void copy4_async(float* target, const float* source, bool exists) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(target));
  const int bytes = exists ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(source), "r"(bytes) : "memory");
}

}  // namespace attention
