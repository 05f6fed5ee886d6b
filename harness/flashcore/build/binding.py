"""Generates the C++ between torch and a launcher from a problem's operator schema.

Two files per problem: ``flashcore/problem.h``, without torch, which a variant's source includes for the types ``Shape``
and ``Args``; and ``binding.cpp``, which registers the operator through torch's stable ABI. The binding is compiled once
per problem and linked with every variant, whose object provides the operator's name, so that 40 variants cost one
compilation of torch's headers.
"""

from __future__ import annotations

import re

from flashcore.model.suite import Argument, Problem
from flashcore.suites.operator_schema import SCALAR_TYPES

#: The oldest torch whose stable ABI the binding uses: 2.10.
TORCH_TARGET_VERSION = "0x020a000000000000"


_NOTICE = "// Generated from the operator schema in suite.toml; edits are lost.\n"


def c_type(argument: Argument) -> str:
    if argument.kind == "tensor":
        return "void*" if argument.mutable else "const void*"
    return {"int": "std::int64_t", "float": "double", "bool": "bool"}[argument.kind]


def fields(argument: Argument) -> list[str]:
    """The argument's members of ``flashcore_arguments``, as C declarations."""
    more = [f"std::int64_t {argument.name}_strides[{len(argument.dims)}]"] if argument.strides else []
    return [f"{c_type(argument)} {argument.name}", *more]


def problem_header(problem: Problem) -> str:
    """``flashcore/problem.h``: ``Shape`` has the dimensions, ``Args`` the arguments in order. A tensor that may be
    strided is followed by its strides in elements; an absent one is null."""
    dims = ", ".join(problem.dims)
    sizes = ", ".join(f"d[{i}]" for i in range(len(problem.dims)))
    return (
        f"{_NOTICE}#pragma once\n#include <flashcore/arguments.h>\n"
        "#include <flashcore/launch.h>\n\nnamespace flashcore {\n\n"
        f"struct Shape {{\n  std::int64_t {dims};\n}};\n\n"
        "using Args = flashcore_arguments;\n\n"
        f"inline Shape shape_of(const std::int64_t* d) {{ return Shape{{{sizes}}}; }}\n\n"
        "}  // namespace flashcore\n"
    )


def binding_source(suite: str, problem: Problem) -> str:
    """``binding.cpp``: checks the device, dtype, layout and dimensions of every tensor, then launches.

    The operator is ``flashcore_<suite>::<variant>`` followed by the environment's ``FLASHCORE_OP_SUFFIX``, which
    distinguishes two builds of a variant in one process. Only its parameters' names end in ``_``.
    """
    tensors = [a for a in problem.arguments if a.kind == "tensor"]
    parameters = ", ".join(
        f"{'std::optional<Tensor>' if a.optional else _PARAMETERS[a.kind]} {a.name}_" for a in problem.arguments
    )
    first = f"{tensors[0].name}_"
    checks = []
    derived = dict.fromkeys(d for a in tensors for d in a.dims if d not in problem.dims)
    slots = [*problem.dims, *derived]  # `C/2` is read like a dimension and then compared with C
    for a in tensors:
        names = ", ".join(f'"{d}"' for d in a.dims)
        indices = ", ".join(str(slots.index(d)) for d in a.dims)
        guard, star = (f"if ({a.name}_) ", "*") if a.optional else ("", "")
        checks.append(
            f'  {guard}check({star}{a.name}_, {{"{a.name}", ScalarType::{SCALAR_TYPES[a.dtype]}, '
            f'"{a.dtype}", {{{names}}}, {{{indices}}}{_LAYOUT[a.strides, a.mutable]}}}, dims, {first});'
        )
    always = {d for a in tensors if not a.optional for d in a.dims}
    for dim in derived:
        expected = re.sub(r"[A-Za-z]\w*", lambda m: f"dims[{problem.dims.index(m[0])}]", dim)
        actual = f"dims[{slots.index(dim)}]"
        message = f'": a dimension {dim} must be ", {expected}, ", found ", {actual}'
        condition = f"{actual} == {expected}" if dim in always else f"({actual} < 0 || {actual} == {expected})"
        checks.append(f"  STD_TORCH_CHECK({condition}, flashcore_variant_name(), {message});")
    values = ", ".join(value for a in problem.arguments for value in _values(a))
    strided = any(a.strides for a in tensors)
    return _BINDING.format(
        notice=_NOTICE,
        optional="#include <optional>\n" if any(a.optional for a in tensors) else "",
        layout=_EXPECTED_LAYOUT if strided else "",
        contiguity=_STRIDED if strided else _CONTIGUOUS,
        namespace=f"flashcore_{suite}",
        schema=problem.schema,
        parameters=parameters,
        rank=len(slots),
        checks="\n".join(checks),
        first=first,
        values=values,
    )


_PARAMETERS = {"tensor": "Tensor", "int": "int64_t", "float": "double", "bool": "bool"}


def _values(argument: Argument) -> list[str]:
    """A parameter's values in ``flashcore_arguments``, as C++ expressions."""
    name = f"{argument.name}_"
    if argument.kind != "tensor":
        return [name]
    pointer = "mutable_data_ptr()" if argument.mutable else "const_data_ptr()"
    members = [pointer, *(f"stride({i})" for i in range(len(argument.dims) if argument.strides else 0))]
    of = [f"({name} ? {name}->{m} : 0)" if argument.optional else f"{name}.{m}" for m in members]
    if argument.optional:
        of[0] = f"({name} ? {name}->{pointer} : nullptr)"
    return [of[0], *([f"{{{', '.join(of[1:])}}}"] if argument.strides else [])]


#: A tensor's allowed layout and whether it is written: more fields of ``Expected``.
_LAYOUT = {
    (strides, written): f", '{strides[0]}', {str(written).lower()}" if strides else ""
    for strides in ("", "rows", "any")
    for written in (False, True)
}
_EXPECTED_LAYOUT = """
  char strides = 'c';  // contiguous; r: rows are; a: any
  bool written = false;"""
_CONTIGUOUS = """
  STD_TORCH_CHECK(t.is_contiguous(), op, ": ", e.name, " must be contiguous");"""
_STRIDED = """
  STD_TORCH_CHECK(e.strides != 'c' || t.is_contiguous(), op, ": ", e.name, " must be contiguous");
  for (int64_t i = 0; i < t.dim() && !t.is_contiguous(); ++i) {
    const int64_t stride = t.stride(i);
    if (t.size(i) == 1) continue;
    STD_TORCH_CHECK(!e.written || stride != 0, op, ": ", e.name, " is written, and its elements share memory");
    if (e.strides != 'r') continue;
    STD_TORCH_CHECK(i + 1 < t.dim() || stride == 1, op, ": the last dimension of ", e.name,
                    " must be contiguous, found a stride of ", stride);
    STD_TORCH_CHECK(i + 1 == t.dim() || stride * static_cast<int64_t>(t.element_size()) % 16 == 0, op, ": ", e.name,
                    " must have strides of multiples of 16 bytes, found one of ", stride, " elements");
  }"""

_BINDING = """{notice}
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <dlfcn.h>

#include <cstdlib>
{optional}#include <string>
#include <vector>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

extern "C" {{
const char* flashcore_variant_name();
const char* flashcore_error_string(int);
uint64_t flashcore_workspace_bytes(const int64_t*);
int flashcore_launch(const void*, const int64_t*, void*, void*, const char**);
}}

#include <flashcore/arguments.h>

namespace {{

constexpr int kRank = {rank};

// aoti_torch_get_current_cuda_stream, or null in a CPU-only torch, which must be able to load this library too. It is
// looked up in torch's CUDA library, which is loaded but not in this library's symbol scope.
using CurrentStream = AOTITorchError (*)(int32_t device_index, void** stream);

CurrentStream current_stream() {{
  static const CurrentStream function = [] {{
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* symbol = dlsym(library == nullptr ? RTLD_DEFAULT : library, "aoti_torch_get_current_cuda_stream");
    return reinterpret_cast<CurrentStream>(symbol);
  }}();
  return function;
}}

struct Expected {{
  const char* name;
  ScalarType dtype;
  const char* dtype_name;
  std::vector<const char*> dims;
  std::vector<int> index;{layout}
}};

void check(const Tensor& t, const Expected& e, int64_t* dims, const Tensor& first) {{
  const char* op = flashcore_variant_name();
  STD_TORCH_CHECK(t.is_cuda(), op, ": ", e.name, " must be a CUDA tensor");
  STD_TORCH_CHECK(t.get_device_index() == first.get_device_index(), op, ": ", e.name,
                  " is on another device than the first tensor");
  STD_TORCH_CHECK(t.scalar_type() == e.dtype, op, ": ", e.name, " must be ", e.dtype_name);
  STD_TORCH_CHECK(t.dim() == static_cast<int64_t>(e.dims.size()), op, ": ", e.name, " must have ",
                  e.dims.size(), " dimensions, found ", t.dim());{contiguity}
  // Kernels use 16-byte accesses; torch's allocator aligns to 512, a view may not be aligned.
  STD_TORCH_CHECK(reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0, op, ": ", e.name,
                  " must be 16-byte aligned");
  for (size_t i = 0; i < e.dims.size(); ++i) {{
    int64_t& expected = dims[e.index[i]];
    const int64_t actual = t.size(static_cast<int64_t>(i));
    if (expected < 0) expected = actual;
    STD_TORCH_CHECK(expected == actual, op, ": dimension ", e.dims[i], " of ", e.name, " must be ",
                    expected, ", found ", actual);
    STD_TORCH_CHECK(actual >= 1, op, ": dimension ", e.dims[i], " of ", e.name, " is empty");
  }}
}}

void call({parameters}) {{
  int64_t dims[kRank];
  for (int64_t& d : dims) d = -1;
{checks}
  torch::stable::accelerator::DeviceGuard guard({first}.get_device_index());
  void* stream = nullptr;
  STD_TORCH_CHECK(current_stream() != nullptr, "this torch has no CUDA");
  STD_TORCH_CHECK(current_stream()({first}.get_device_index(), &stream) == 0, "no current CUDA stream");
  // From torch's caching allocator: ordered with the stream, and safe under graph capture.
  const int64_t bytes = static_cast<int64_t>(flashcore_workspace_bytes(dims));
  void* workspace = nullptr;
  Tensor buffer;
  if (bytes > 0) {{
    buffer = torch::stable::new_empty({first}, {{bytes}}, ScalarType::Byte);
    workspace = buffer.mutable_data_ptr();
  }}
  const flashcore_arguments arguments{{{values}}};
  const char* error = nullptr;
  const int code = flashcore_launch(&arguments, dims, workspace, stream, &error);
  STD_TORCH_CHECK(code == 0, flashcore_variant_name(), ": ",
                  error ? error : flashcore_error_string(code));
}}

std::string operator_name() {{
  const char* suffix = std::getenv("FLASHCORE_OP_SUFFIX");
  return std::string(flashcore_variant_name()) + (suffix ? suffix : "");
}}

}}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{ m.def((operator_name() + "{schema}").c_str()); }}

STABLE_TORCH_LIBRARY_IMPL({namespace}, CUDA, m) {{
  m.impl(operator_name().c_str(), TORCH_BOX(&call));
}}
"""


def arguments_header(problem: Problem) -> str:
    """``flashcore/arguments.h``: the C layout of ``Args``, shared by the binding and the variant."""
    members = "\n".join(f"  {field};" for a in problem.arguments for field in fields(a))
    return f"{_NOTICE}#pragma once\n#include <cstdint>\n\nstruct flashcore_arguments {{\n{members}\n}};\n"
