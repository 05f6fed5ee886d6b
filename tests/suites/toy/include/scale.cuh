#pragma once

__device__ __forceinline__ float scaled(float x, float factor) { return x * factor; }
