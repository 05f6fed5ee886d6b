// The launcher's contract: what a variant's source defines and the harness calls.
//
// A source includes <flashcore/problem.h> (generated from the suite's operator schema; it includes
// this file and adds `Shape` and `Args`), writes its kernels as extern "C" __global__ functions, and
// defines two host functions:
//
//   flashcore::Plan  plan(const flashcore::Shape&)      host only: runs on machines without a GPU
//   cudaError_t      launch(const flashcore::Args&, const flashcore::Shape&, const flashcore::Plan&,
//                           void* workspace, cudaStream_t)
//
// followed by FLASHCORE_VARIANT(plan, launch). The launcher launches from the same plan that static
// occupancy is computed from. It must not allocate or synchronize. No torch header is needed, so a
// variant compiles in about a second.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace flashcore {

// One kernel launch. `cluster` is in blocks; {1,1,1} launches without a cluster attribute.
// `programmatic` lets the kernel start before its predecessor ends (programmatic dependent launch);
// `cooperative` makes all blocks co-resident, so that they may wait for each other.
struct Launch {
  const char* kernel = nullptr;
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  dim3 cluster{1, 1, 1};
  unsigned dynamic_smem = 0;  // bytes
  bool programmatic = false;
  bool cooperative = false;
};

// A variant's launches for one shape. Set `error` to the reason if a shape is not supported.
struct Plan {
  static constexpr int kCapacity = 32;
  Launch launches[kCapacity];
  int count = 0;
  std::size_t workspace_bytes = 0;
  const char* error = nullptr;

  Plan& add(const Launch& launch) {
    if (count < kCapacity) {
      launches[count++] = launch;
    } else {
      error = "a plan holds at most 32 launches";
    }
    return *this;
  }
};

inline unsigned ceil_div(std::int64_t a, std::int64_t b) {
  return static_cast<unsigned>((a + b - 1) / b);
}

// Launches `kernel` as specified by `l`. Arguments are converted to the kernel's parameter types.
template <typename... Params, typename... Given>
cudaError_t run(const Launch& l, void (*kernel)(Params...), cudaStream_t stream, Given... given) {
  static_assert(sizeof...(Params) == sizeof...(Given), "the kernel takes another number of arguments");
  // More than 48 KB of dynamic shared memory needs an opt-in per device; repeating it costs less
  // than tracking the devices that have it.
  if (l.dynamic_smem > 48 * 1024) {
    cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(l.dynamic_smem));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[3];
  cudaLaunchConfig_t config = {};
  config.gridDim = l.grid;
  config.blockDim = l.block;
  config.dynamicSmemBytes = l.dynamic_smem;
  config.stream = stream;
  config.attrs = attributes;
  if (l.cluster.x * l.cluster.y * l.cluster.z > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim.x = l.cluster.x;
    attributes[config.numAttrs].val.clusterDim.y = l.cluster.y;
    attributes[config.numAttrs].val.clusterDim.z = l.cluster.z;
    ++config.numAttrs;
  }
  if (l.programmatic) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    ++config.numAttrs;
  }
  if (l.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs].val.cooperative = 1;
    ++config.numAttrs;
  }
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(given)...);
}

}  // namespace flashcore

// The C interface that the generated binding and the plan reader call.
extern "C" {
struct flashcore_launch_record {
  const char* kernel;
  std::uint32_t grid[3], block[3], cluster[3];
  std::uint32_t dynamic_smem, programmatic, cooperative;
};
}

#define FLASHCORE_STRINGIFY_(x) #x
#define FLASHCORE_STRINGIFY(x) FLASHCORE_STRINGIFY_(x)

// Exports the variant. The build defines FLASHCORE_NAME.
#define FLASHCORE_VARIANT(plan_function, launch_function)                                          \
  extern "C" const char* flashcore_variant_name() { return FLASHCORE_STRINGIFY(FLASHCORE_NAME); }  \
  extern "C" const char* flashcore_error_string(int code) {                                        \
    return cudaGetErrorString(static_cast<cudaError_t>(code));                                     \
  }                                                                                                \
  /* Fills at most `capacity` records; returns the number of launches, or -1 with *error set. */   \
  extern "C" int flashcore_launch_plan(const std::int64_t* dims, flashcore_launch_record* out,     \
                                       int capacity, std::uint64_t* workspace_bytes,               \
                                       const char** error) {                                       \
    const flashcore::Plan p = plan_function(flashcore::shape_of(dims));                            \
    if (p.error) {                                                                                 \
      *error = p.error;                                                                            \
      return -1;                                                                                   \
    }                                                                                              \
    *workspace_bytes = p.workspace_bytes;                                                          \
    for (int i = 0; i < p.count && i < capacity; ++i) {                                            \
      const flashcore::Launch& l = p.launches[i];                                                  \
      out[i] = {l.kernel,                                                                          \
                {l.grid.x, l.grid.y, l.grid.z},                                                    \
                {l.block.x, l.block.y, l.block.z},                                                 \
                {l.cluster.x, l.cluster.y, l.cluster.z},                                           \
                l.dynamic_smem,                                                                    \
                l.programmatic,                                                                    \
                l.cooperative};                                                                    \
    }                                                                                              \
    return p.count;                                                                                \
  }                                                                                                \
  extern "C" std::uint64_t flashcore_workspace_bytes(const std::int64_t* dims) {                   \
    return plan_function(flashcore::shape_of(dims)).workspace_bytes;                               \
  }                                                                                                \
  /* Returns a cudaError_t, or -1 with *error set when the plan refuses the shape. */              \
  extern "C" int flashcore_launch(const void* args, const std::int64_t* dims, void* workspace,     \
                                  void* stream, const char** error) {                              \
    const flashcore::Shape shape = flashcore::shape_of(dims);                                      \
    const flashcore::Plan p = plan_function(shape);                                                \
    if (p.error) {                                                                                 \
      *error = p.error;                                                                            \
      return -1;                                                                                   \
    }                                                                                              \
    return static_cast<int>(launch_function(*static_cast<const flashcore::Args*>(args), shape, p,  \
                                            workspace, static_cast<cudaStream_t>(stream)));        \
  }
