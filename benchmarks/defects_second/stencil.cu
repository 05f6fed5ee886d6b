// out = (4 x + its four neighbors) / 8 on a plane whose edges meet. CASE chooses one planted defect; the table is in
// defects.toml.
#include <flashcore/problem.h>

#define CASE_stencil_sound 0
#define CASE_stencil_columns 1
#define CASE_stencil_modulo 2
#define CASE_stencil_colors 3
#define CASE_stencil_tile 4
#define CASE_stencil_fences 5

__device__ float mixed(float middle, float up, float down, float left, float right) {
  return 0.125f * (4.0f * middle + ((up + down) + (left + right)));
}

#if CASE == CASE_stencil_modulo
constexpr dim3 block(256);
#elif CASE == CASE_stencil_tile
constexpr dim3 block(128);
#else
constexpr dim3 block(32, 8);
#endif
constexpr int tile_rows = 171, tile_pitch = 130;  // CASE_stencil_tile: of a block; with the halo
constexpr int run = 16;                           // CASE_stencil_fences: elements of a thread

extern "C" __global__ void stencil_kernel(const float* __restrict__ x, float* __restrict__ out, int height, int width) {
#if CASE == CASE_stencil_sound || CASE == CASE_stencil_colors
#if CASE == CASE_stencil_sound
  const int row = blockIdx.y * block.y + threadIdx.y, first = (blockIdx.x * 32 + threadIdx.x) * 4, step = width;
#else
  // A block for each row, in three colors as for an update in place: every third row, then those after them, ...
  const int row = static_cast<int>(3LL * blockIdx.x % height), first = (threadIdx.y * 32 + threadIdx.x) * 4,
            step = 1024;
#endif
  const float* at = x + static_cast<long long>(row) * width;
  const float* above = x + static_cast<long long>(row == 0 ? height - 1 : row - 1) * width;
  const float* below = x + static_cast<long long>(row == height - 1 ? 0 : row + 1) * width;
  for (int j = first; j < width; j += step) {
    const float4 m = *reinterpret_cast<const float4*>(at + j);
    const float4 u = *reinterpret_cast<const float4*>(above + j);
    const float4 d = *reinterpret_cast<const float4*>(below + j);
    const float l = at[j == 0 ? width - 1 : j - 1], r = at[j + 4 == width ? 0 : j + 4];
    *reinterpret_cast<float4*>(out + static_cast<long long>(row) * width + j) =
        make_float4(mixed(m.x, u.x, d.x, l, m.y), mixed(m.y, u.y, d.y, m.x, m.z), mixed(m.z, u.z, d.z, m.y, m.w),
                    mixed(m.w, u.w, d.w, m.z, r));
  }
#elif CASE == CASE_stencil_columns
  // Neighboring threads are in neighboring rows.
  const int row = blockIdx.x * block.x + threadIdx.x, j = blockIdx.y * block.y + threadIdx.y;
  const long long at = static_cast<long long>(row) * width;
  const long long above = static_cast<long long>(row == 0 ? height - 1 : row - 1) * width;
  const long long below = static_cast<long long>(row == height - 1 ? 0 : row + 1) * width;
  out[at + j] = mixed(x[at + j], x[above + j], x[below + j], x[at + (j == 0 ? width - 1 : j - 1)],
                      x[at + (j + 1 == width ? 0 : j + 1)]);
#elif CASE == CASE_stencil_modulo
  // Edges meet by 64-bit remainders.
  const long long h = height, w = width, i = static_cast<long long>(blockIdx.x) * block.x + threadIdx.x;
  const long long row = i / w, j = i % w;
  out[i] = mixed(x[i], x[(row + h - 1) % h * w + j], x[(row + 1) % h * w + j], x[row * w + (j + w - 1) % w],
                 x[row * w + (j + 1) % w]);
#elif CASE == CASE_stencil_tile
  // A block of 128 threads copies 173 rows to 88 KiB of shared memory before it computes.
  extern __shared__ float tile[];
  const int left = blockIdx.x * 128, top = blockIdx.y * tile_rows;
  const int rows = min(tile_rows, height - top);
  for (int r = 0; r < rows + 2; ++r) {
    const int row = top + r - 1;
    const float* from = x + static_cast<long long>(row < 0 ? height - 1 : row == height ? 0 : row) * width;
    tile[r * tile_pitch + 1 + threadIdx.x] = from[left + threadIdx.x];
    if (threadIdx.x == 0) tile[r * tile_pitch] = from[left == 0 ? width - 1 : left - 1];
    if (threadIdx.x == 127) tile[r * tile_pitch + 129] = from[left + 128 == width ? 0 : left + 128];
  }
  __syncthreads();
  for (int r = 0; r < rows; ++r) {
    const float* at = tile + (r + 1) * tile_pitch + 1 + threadIdx.x;
    out[static_cast<long long>(top + r) * width + left + threadIdx.x] =
        mixed(at[0], at[-tile_pitch], at[tile_pitch], at[-1], at[1]);
  }
#elif CASE == CASE_stencil_fences
  // A fence for the whole system after each element, as if the host waited for them.
  const int j = blockIdx.x * 32 + threadIdx.x, top = (blockIdx.y * block.y + threadIdx.y) * run;
  for (int row = top; row < top + run; ++row) {
    const long long at = static_cast<long long>(row) * width;
    const long long above = static_cast<long long>(row == 0 ? height - 1 : row - 1) * width;
    const long long below = static_cast<long long>(row == height - 1 ? 0 : row + 1) * width;
    out[at + j] = mixed(x[at + j], x[above + j], x[below + j], x[at + (j == 0 ? width - 1 : j - 1)],
                        x[at + (j + 1 == width ? 0 : j + 1)]);
    __threadfence_system();
  }
#endif
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Launch launch{.kernel = "stencil_kernel", .block = block};
#if CASE == CASE_stencil_sound
  launch.grid = dim3(s.W / 128, s.H / 8);
#elif CASE == CASE_stencil_columns
  launch.grid = dim3(s.H / 32, s.W / 8);
#elif CASE == CASE_stencil_modulo
  launch.grid = dim3(s.H * s.W / 256);
#elif CASE == CASE_stencil_colors
  launch.grid = dim3(s.H);
#elif CASE == CASE_stencil_tile
  launch.grid = dim3(s.W / 128, flashcore::ceil_div(s.H, tile_rows));
  launch.dynamic_smem = (tile_rows + 2) * tile_pitch * 4;
#elif CASE == CASE_stencil_fences
  launch.grid = dim3(s.W / 32, s.H / (8 * run));
#endif
  flashcore::Plan p;
  if (s.H % 128 || s.W % 1024 || s.H % 3 == 0) p.error = "expected H a multiple of 128 but not of 3, W of 1,024";
  return p.add(launch);
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  return flashcore::run(p.launches[0], stencil_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<int>(s.H), static_cast<int>(s.W));
}

FLASHCORE_VARIANT(plan, launch)
