"""The launches of a CUDA variant with their arguments: its host code runs once, without a GPU, on stand-ins."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.measure.build.launch_plan import LaunchRecord
from flashcore.measure.build.ninja_graph import HARNESS_INCLUDE, OBJECT
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.host_program import compiled
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.record import Artifact
from flashcore.plugins.launcher.plan import Launch, Plan, Tensor, Value, tensors_of
from flashcore.plugins.recorded.launchers import Device, device, struct, values
from flashcore.readers import cubin

_WORKSPACE, _WORKSPACE_AT = "workspace", 1 << 50
_MAP_BYTES = 128  # as large a parameter may hold a tensor map, which hides its address


def planned(case: Case, inputs: Mapping[str, Any], artifact: Artifact, to: Path) -> Plan:
    """The plan of what a variant launches on inputs of these numbers; its cubin is copied to the folder ``to``.

    Raises:
        FlashcoreError: it refuses the shape, or an argument is none that a plan has.
        CapabilityError: there is no compiler.
    """
    tensors, file, host = tensors_of(case), Path(artifact.cubin or ""), Path(artifact.plan_library or "")
    sizes_of = {kernel.name: kernel.parameters for kernel in cubin.read(file, artifact.arch).kernels}
    members = values(case.arguments, {**case.params, **inputs})
    addresses = (int(address) for kind, address in members if "*" in kind)
    places = dict(zip((a.name for a in case.arguments if a.kind == "tensor"), addresses, strict=True))
    dims = dict.fromkeys(d for a in case.arguments if not a.optional for d in a.dims if d.isidentifier())
    sizes = (ctypes.c_int64 * len(dims))(*(int(case.params[d]) for d in dims))
    launched: list[tuple[dict[str, Any], list[bytes]]] = []

    def on_launch(record: Any, arguments: Any) -> None:
        launch = record.contents
        dims = {name: [*getattr(launch, name)] for name in ("grid", "block", "cluster")}
        flags = {name: bool(getattr(launch, name)) for name in ("programmatic", "cooperative")}
        given = {"cubin": "c", "kernel": launch.kernel.decode(), "shared": launch.dynamic_smem, **dims, **flags}
        parameters = sizes_of.get(given["kernel"], ())
        launched.append((given, [ctypes.string_at(arguments[i], size) for i, size in enumerate(parameters)]))

    with tempfile.TemporaryDirectory() as place:
        library = ctypes.CDLL(str(_linked(host.with_name(OBJECT), Path(place))))
    library.flashcore_workspace_bytes.restype = ctypes.c_uint64
    if workspace := int(library.flashcore_workspace_bytes(sizes)):
        tensors[_WORKSPACE] = Tensor(dtype="uint8", sizes=[workspace], role="workspace")
        places[_WORKSPACE] = _WORKSPACE_AT
    library.flashcore_record(ctypes.byref(Device(*device(artifact.arch))))
    callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(LaunchRecord), ctypes.POINTER(ctypes.c_void_p))(on_launch)
    ctypes.c_void_p.in_dll(library, "flashcore_on_launch").value = ctypes.cast(callback, ctypes.c_void_p).value
    arguments, error = struct(members), ctypes.c_char_p()
    scratch = ctypes.c_void_p(places.get(_WORKSPACE))
    code = library.flashcore_launch(ctypes.byref(arguments), sizes, scratch, None, ctypes.byref(error))
    if library.flashcore_recorded((LaunchRecord * 32)(), 32, ctypes.byref(error)) < 0 or code:
        library.flashcore_error_string.restype = ctypes.c_char_p
        reason = (error.value or library.flashcore_error_string(code)).decode(errors="replace")
        raise FlashcoreError(f"{case.name}: expected that it launches, found: {reason}")
    launches = [
        Launch(**given, arguments=[_argument(content, tensors, places) for content in contents])
        for given, contents in launched
    ]
    shutil.copy(file, to / "c.cubin")
    return Plan(cubins={"c": "c.cubin"}, tensors=tensors, launches=launches)


def _linked(variant: Path, folder: Path) -> Path:
    """The host code with a runtime whose launches are recorded."""
    nvcc, cxx = toolchain.find_nvcc(), toolchain.find_cxx()
    source = HARNESS_INCLUDE / "flashcore" / "recorder.cpp"
    includes = (f"-I{HARNESS_INCLUDE}", f"-I{nvcc.root / 'include'}")
    recorder = compiled(source, ("-std=c++17", "-O1", "-fPIC", "-c", *includes), "recorder.o")
    made = folder / "recorded.so"
    flags = ("-Wl,-z,muldefs", "-Wl,-Bsymbolic", nvcc.cudart_static, "-ldl", "-lrt", "-lpthread")
    done = toolchain.ask([cxx, "-shared", "-o", made, variant, recorder, *flags])
    if done.returncode:
        raise FlashcoreError(f"{variant}: expected an object of a variant: {done.stderr[-400:]}")
    return made


def _argument(content: bytes, tensors: Mapping[str, Tensor], places: Mapping[str, int]) -> list[Value]:
    """An argument; its aligned words that are addresses stand for tensors.

    Raises:
        FlashcoreError: it may be a tensor map.
    """
    if len(content) >= _MAP_BYTES:
        raise FlashcoreError(
            f"expected an argument below {_MAP_BYTES} bytes, found {len(content)}: it may be a tensor map"
        )
    parts = [] if len(content) == 8 else [Value(hex=content.hex())]
    for at in range(0, len(content) - 7, 8):
        offsets = {name: int.from_bytes(content[at : at + 8], "little") - places[name] for name in tensors}
        parts += [Value(at=at, tensor=n, offset=x) for n, x in offsets.items() if 0 <= x < tensors[n].bytes]
    return parts or [Value(hex=content.hex())]
