// For a plan that depends on an integer argument of the operator. Include it after <flashcore/problem.h>.
//
//   flashcore::Plan  plan(const flashcore::Shape&, std::int64_t value)
//
// followed by FLASHCORE_VARIANT_BY(plan, launch, argument). In a shape of the suite the value is the parameter of that
// name in capitals, or 0 without one. The size of the workspace may not depend on it. Separate from launch.h, which is
// part of every variant's source hash.
#pragma once

#include <flashcore/launch.h>

#define FLASHCORE_VARIANT_BY(plan_function, launch_function, argument)                            \
  extern "C" const char* flashcore_variant_name() { return FLASHCORE_STRINGIFY(FLASHCORE_NAME); } \
  extern "C" const char* flashcore_error_string(int code) {                                       \
    return cudaGetErrorString(static_cast<cudaError_t>(code));                                    \
  }                                                                                               \
  /* The plan reader gives the value after the dimensions, of which a shape consists. */          \
  extern "C" int flashcore_launch_plan(const std::int64_t* dims, flashcore_launch_record* out,    \
                                       int capacity, std::uint64_t* workspace_bytes,              \
                                       const char** error) {                                      \
    const flashcore::Plan p = plan_function(                                                      \
        flashcore::shape_of(dims), dims[sizeof(flashcore::Shape) / sizeof(std::int64_t)]);        \
    if (p.error) {                                                                                \
      *error = p.error;                                                                           \
      return -1;                                                                                  \
    }                                                                                             \
    *workspace_bytes = p.workspace_bytes;                                                         \
    for (int i = 0; i < p.count && i < capacity; ++i) {                                           \
      const flashcore::Launch& l = p.launches[i];                                                 \
      out[i] = {l.kernel,                                                                         \
                {l.grid.x, l.grid.y, l.grid.z},                                                   \
                {l.block.x, l.block.y, l.block.z},                                                \
                {l.cluster.x, l.cluster.y, l.cluster.z},                                          \
                l.dynamic_smem,                                                                   \
                l.programmatic,                                                                   \
                l.cooperative};                                                                   \
    }                                                                                             \
    return p.count;                                                                               \
  }                                                                                               \
  extern "C" std::uint64_t flashcore_workspace_bytes(const std::int64_t* dims) {                  \
    return plan_function(flashcore::shape_of(dims), 0).workspace_bytes;                           \
  }                                                                                               \
  extern "C" int flashcore_launch(const void* args, const std::int64_t* dims, void* workspace,    \
                                  void* stream, const char** error) {                             \
    const flashcore::Shape shape = flashcore::shape_of(dims);                                     \
    const flashcore::Args& a = *static_cast<const flashcore::Args*>(args);                        \
    const flashcore::Plan p = plan_function(shape, a.argument);                                   \
    if (p.error) {                                                                                \
      *error = p.error;                                                                           \
      return -1;                                                                                  \
    }                                                                                             \
    return static_cast<int>(                                                                      \
        launch_function(a, shape, p, workspace, static_cast<cudaStream_t>(stream)));              \
  }
