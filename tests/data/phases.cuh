// Two helpers: one counts where it is called from, the other marks a phase of its own.
#pragma once

__device__ __forceinline__ float fetch(const float* from) { return from[threadIdx.x]; }

__device__ __forceinline__ float bend(float x) {
  // phase: bend
  return __sinf(x);
}
