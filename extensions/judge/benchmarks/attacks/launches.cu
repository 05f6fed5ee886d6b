// A launch from the device, for benchmarks/judge.py.
__global__ void child(float* out) { out[0] = 1.0f; }
extern "C" __global__ void attack_kernel(const float* x, float* out, int rows, int cols, unsigned* workspace) {
  child<<<1, 1>>>(out);
}
