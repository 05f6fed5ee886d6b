// For existing launchers without a declared plan: their launches are recorded.
//
// A source includes <flashcore/problem.h> and this file, and defines one host function that launches, with <<<>>> or any
// launch call of the runtime, on the given stream:
//
//   cudaError_t launch(const flashcore::Args&, const flashcore::Shape&, void* workspace, cudaStream_t)
//
// followed by FLASHCORE_LAUNCHER(launch). Its variants have `plan = "recorded"` in the manifest. The launch plan is then
// recorded by calling the function without a GPU, with the runtime replaced (recorder.cpp). In that call tensors are
// addresses that must not be dereferenced, numbers are the shape's params of the same name (else 1), and launches and
// queries have the results that a device of the arch would give. With a query that has no answer, the plan is unknown.
//
// A function that needs scratch memory declares its size in bytes for a shape:
// FLASHCORE_LAUNCHER_WITH_WORKSPACE(launch, workspace_bytes).
#pragma once

#include <flashcore/launch.h>

namespace flashcore {

inline std::uint64_t no_workspace(const Shape&) { return 0; }

// The kernel's name, for a declared plan: kernel_name<gemm<128, 64>>(). Avoids mangling by hand.
template <auto kernel>
constexpr const char* kernel_name() {
  return __PRETTY_FUNCTION__;
}

}  // namespace flashcore

#define FLASHCORE_LAUNCHER(launch_function) \
  FLASHCORE_LAUNCHER_WITH_WORKSPACE(launch_function, flashcore::no_workspace)

#define FLASHCORE_LAUNCHER_WITH_WORKSPACE(launch_function, workspace_function)                     \
  extern "C" const char* flashcore_variant_name() { return FLASHCORE_STRINGIFY(FLASHCORE_NAME); }  \
  extern "C" const char* flashcore_error_string(int code) {                                        \
    return cudaGetErrorString(static_cast<cudaError_t>(code));                                     \
  }                                                                                                \
  extern "C" std::uint64_t flashcore_workspace_bytes(const std::int64_t* dims) {                   \
    return workspace_function(flashcore::shape_of(dims));                                          \
  }                                                                                                \
  extern "C" int flashcore_launch(const void* args, const std::int64_t* dims, void* workspace,     \
                                  void* stream, const char**) {                                    \
    return static_cast<int>(launch_function(*static_cast<const flashcore::Args*>(args),            \
                                            flashcore::shape_of(dims), workspace,                  \
                                            static_cast<cudaStream_t>(stream)));                   \
  }                                                                                                \
  extern "C" int flashcore_launch_plan(const std::int64_t*, flashcore_launch_record*, int,         \
                                       std::uint64_t*, const char** error) {                       \
    *error = "its launches are recorded: set plan = \"recorded\" for the variant in the manifest"; \
    return -1;                                                                                     \
  }
