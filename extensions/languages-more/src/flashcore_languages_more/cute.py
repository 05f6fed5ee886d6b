"""CuTe DSL's launches. The variant is a ``@cute.jit`` function of tensors, which is compiled for compact ones of the
shape's sizes; its compiled host code then runs on placeholder addresses, with a runtime that records launches."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import CFUNCTYPE, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from flashcore.chips import occupancy
from flashcore.features.languages.launches import Call, StandIn
from flashcore.features.languages.traced import Package, Traced
from flashcore.readers import cubin

_OPTIONS = "--gpu-arch {} --keep-cubin --generate-line-info --ptxas-options '-v' remarks{{ptx}}"
_ATTRIBUTE_BYTES, _COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 72, 2, 4, 6  # of cudaLaunchAttribute
_SMEM, _MAJOR, _MINOR = 97, 75, 76  # of cudaDeviceAttr
_SIGNATURES = {  # of the functions of the runtime that host code calls: p is an address, i an int
    "_cudaLaunchKernelEx": "ppp", "_cudaLibraryLoadData": "ppppippi", "_cudaLibraryGetKernel": "ppp",
    "_cudaGetDevice": "p", "_cudaDeviceGetAttribute": "pii", "_cuKernelGetAttribute": "pipi",
    "_cudaKernelSetAttributeForDevice": "piii", "_cudaFuncSetAttribute": "pii",
}  # fmt: skip


def prepare() -> tuple[type, ...]:
    import cutlass.cute  # noqa: F401

    return ()


def launches(
    function: Callable[..., Any], arguments: Sequence[Any], config: Mapping[str, Any], arch: str
) -> list[Call]:
    from cutlass import cute

    given = [_fake(a) if isinstance(a, StandIn) else a for a in arguments]
    with _written() as output:
        compiled = cute.compile(function, *given, **config, options=_OPTIONS.format(arch))
    code, log = compiled.__cubin__, re.sub(r"^ptxas +\. +", "    ", output(), flags=re.MULTILINE)
    kernels = cubin.parse(code, arch, function.__name__).kernels
    if len(kernels) != 1:
        raise NotImplementedError(f"expected one kernel in the cubin, found {len(kernels)}")
    # The same launches on other addresses show that none is hidden in an argument.
    first, second = (_launched(compiled, function, arguments, kernels[0], base << 36, arch) for base in (0x5A51, 0x6B6))
    if first != second:
        raise NotImplementedError("an argument depends on a tensor's address otherwise than by containing it")
    mangled, module = kernels[0].name, inspect.unwrap(function).__globals__
    name = max((n for n in module if mangled.startswith(f"kernel_cutlass_{n}_")), key=len, default=mangled)
    labels = tuple(f"{a.name}:{'x'.join(map(str, a.shape))}" for a in arguments if isinstance(a, StandIn))
    return [Call(name, labels, code, log, **launch) for launch in first]


def _fake(tensor: StandIn) -> Any:
    import cutlass
    from cutlass.cute.runtime import make_fake_compact_tensor

    name = str(tensor.dtype).rpartition(".")[2]
    kind = getattr(cutlass, {"bool": "Boolean"}.get(name, name.title().replace("Bf", "BF").replace("Ui", "UI")))
    return make_fake_compact_tensor(kind, tensor.shape, stride_order=(*range(tensor.ndim),)[::-1], assumed_align=16)


def _launched(
    compiled: Any, function: Any, arguments: Sequence[Any], kernel: cubin.Kernel, base: int, arch: str
) -> list[dict[str, Any]]:
    """What the host code launches if its tensors are at addresses from ``base`` on."""
    from cutlass._mlir.execution_engine import ExecutionEngine

    places = {base + (i << 44): a for i, a in enumerate(arguments) if isinstance(a, StandIn)}
    limits = occupancy.limits(arch)
    major, minor = divmod(int(arch[3:].rstrip("af")), 10)
    answers = {_MAJOR: major, _MINOR: minor, _SMEM: limits.smem_block * 1024 if limits else 0}
    calls: list[dict[str, Any]] = []
    unknown: list[int] = []

    def answered(name: str, first: int, second: int = 0, third: int = 0, *_: int) -> int:
        if name == "_cudaLaunchKernelEx":
            calls.append(_launch(first, (c_void_p * len(kernel.parameters)).from_address(third), kernel, places))
        elif name == "_cudaDeviceGetAttribute":
            unknown.extend({second} - answers.keys())
            c_int32.from_address(first).value = answers.get(second, 0)
        elif "Set" not in name:  # a handle, or bytes of static shared memory, which a linked kernel always has
            c_int32.from_address(first).value = (name == "_cuKernelGetAttribute" and kernel.static_smem) or 0
        return 0

    engine = ExecutionEngine(compiled.ir_module, opt_level=2, shared_libs=[])
    runtime = []
    for name, kinds in _SIGNATURES.items():
        prototype = CFUNCTYPE(c_int32, *(c_void_p if kind == "p" else c_int32 for kind in kinds))
        runtime.append(prototype(lambda *given, name=name: answered(name, *given)))
        engine.raw_register_runtime(name, ctypes.cast(runtime[-1], c_void_p))

    def call(name: str, *values: Any) -> None:
        pointers = [value if isinstance(value, c_void_p) else ctypes.addressof(value) for value in values]
        CFUNCTYPE(None, c_void_p)(engine.raw_lookup(name))((c_void_p * len(values))(*pointers))

    handle, error = ctypes.pointer(c_int64()), c_int32()
    call("cuda_init", handle, error)
    call("cuda_load_to_device", handle, c_int32(), error)
    types, tensors = [*inspect.get_annotations(inspect.unwrap(function), eval_str=True).values()], iter(places)
    values = [
        c_int64(next(tensors)) if isinstance(a, StandIn) else types[i](a).__c_pointers__()[0]
        for i, a in enumerate(arguments)
    ]
    call(f"_mlir_ciface_{compiled.function_name}", *values, error)
    if unknown:
        raise NotImplementedError(f"the host code asks for attributes {unknown} of the device, which needs a GPU")
    return calls


def _launch(config: int, parameters: Any, kernel: cubin.Kernel, places: Mapping[int, StandIn]) -> dict[str, Any]:
    """A launch, read from a ``cudaLaunchConfig_t``."""
    dims = (c_uint32 * 7).from_address(config)
    attributes: dict[int, list[int]] = {}
    for i in range(c_uint32.from_address(config + 48).value):
        at = c_int64.from_address(config + 40).value + i * _ATTRIBUTE_BYTES
        attributes[c_uint32.from_address(at).value] = [*(c_uint32 * 3).from_address(at + 8)]
    contents = [*map(ctypes.string_at, parameters, kernel.parameters)]
    for i, content in enumerate(contents):
        if len(content) == 128 and int.from_bytes(content[:8], "little") in places:
            contents[i] = content[:64] + bytes(64)  # a tensor map, of which the host code leaves half uninitialized
    return {
        "grid": dims[:3],
        "threads": dims[3:6],
        "cluster": attributes.get(_CLUSTER, [1, 1, 1]),
        "shared": dims[6],
        "flags": [bool(attributes.get(number, [0])[0]) for number in (_PROGRAMMATIC, _COOPERATIVE)],
        "arguments": [_values(content, places) for content in contents],
    }


def _values(content: bytes, places: Mapping[int, StandIn]) -> list[dict[str, Any]]:
    """A kernel's argument: the tensors whose addresses are in its bytes, and the other bytes.

    Args:
        places: tensors by their addresses, which nothing else in an argument may equal.
    """
    rest, parts = bytearray(content), []
    for i, word in enumerate(memoryview(content[: len(content) & -8]).cast("Q")):
        for place, tensor in places.items():
            if 0 <= word - place < max(1, tensor.numel() * tensor.itemsize):
                parts.append({"at": 8 * i, "tensor": tensor.name, "offset": word - place})
                rest[8 * i : 8 * i + 8] = bytes(8)
    return parts if len(content) == 8 and parts else [{"hex": rest.hex()}, *parts]


@contextlib.contextmanager
def _written() -> Iterator[Callable[[], str]]:
    """A context whose value returns what was written to the standard output and error in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        before = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        text = ""
        try:
            yield lambda: text
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            text = file.read().decode(errors="replace")


LANGUAGE = Traced(
    "cute",
    Package("nvidia-cutlass-dsl", "./extensions/languages-more[cute]"),
    __name__,
    variables="CUTE_DSL_",
    launcher="flashcore_judge.launcher.program:target",
)
