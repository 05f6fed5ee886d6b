"""Plans of CUDA variants: the host code runs once, without a GPU, on placeholder addresses."""

from __future__ import annotations

import ctypes
import math
import shutil
from pathlib import Path
from typing import Any

from flashcore.build.ninja_graph import HARNESS_INCLUDE, OBJECT, RECORDER_SOURCE
from flashcore.errors import FlashcoreError
from flashcore.features.recorded.launchers import (
    WORKSPACE,
    LauncherDevice,
    attributes,
    kernels,
    struct,
    values,
    workspace_bytes,
)
from flashcore.machine import toolchain
from flashcore.machine.toolchain import host_program
from flashcore.model.cause import cause_text
from flashcore.model.record import Artifact
from flashcore.runner.kernel_call import KernelCall
from flashcore.suites.problems import dimensions
from flashcore_judge.launcher.plan import Launch, Plan, Tensor, Value, tensors_of

_MOST_ITEM = 8  # bytes of an element
_MAP_BYTES = 128  # a parameter of this size may hold a tensor map, which hides its address


def planned(case: KernelCall, inputs: dict[str, Any], artifact: Artifact, folder: Path) -> Plan:
    """The plan of a variant's launches on inputs with these numbers; its cubin is copied to ``folder``.

    Raises:
        FlashcoreError: it refuses the shape, or a plan cannot hold one of the arguments.
        CapabilityError: there is no compiler.
    """
    file = Path(shutil.copy(artifact.cubin or "", folder / "c.cubin"))
    tensors, members = tensors_of(case), values(case.arguments, {**case.params, **inputs})
    places = dict(zip(tensors, (int(address) for kind, address in members if "*" in kind and address), strict=True))
    dims = dimensions(case.arguments)
    sizes = (ctypes.c_int64 * len(dims))(*(int(case.params[d]) for d in dims))
    library = _recording(artifact)
    if workspace := workspace_bytes(library, sizes):
        tensors["workspace"] = Tensor(dtype="uint8", sizes=[workspace], role="workspace")
        places["workspace"] = WORKSPACE
    gpu = LauncherDevice(artifact.arch, attributes(artifact.arch), kernels(artifact.cubin or "", artifact.arch))
    if cause := gpu.call(library, struct(members), sizes):
        raise FlashcoreError(f"{case.name}: expected launches, found: {cause_text(cause)}")
    ranges = {
        name: range(place, place + _MOST_ITEM * math.prod(tensors[name].sizes) + 1) for name, place in places.items()
    }
    launches = [
        Launch(cubin=file.name, arguments=[_argument(content, ranges) for content in contents], **launch)
        for launch, contents in zip(gpu.launches, gpu.arguments, strict=True)
    ]
    return Plan(tensors=tensors, launches=launches)


def _recording(artifact: Artifact) -> ctypes.CDLL:
    """A variant's host code with a runtime that records launches."""
    nvcc, host_code = toolchain.find_nvcc(), Path(artifact.plan_library or "").with_name(OBJECT)
    flags = (
        *("-std=c++17", "-shared", "-fPIC", f"-I{HARNESS_INCLUDE}", f"-I{nvcc.root / 'include'}", str(host_code)),
        *("-Wl,-z,muldefs", "-Wl,-Bsymbolic", str(nvcc.cudart_static), "-ldl", "-lrt", "-lpthread"),
    )
    return ctypes.CDLL(str(host_program(RECORDER_SOURCE, flags, f"recorded-{artifact.host}.so")))


def _argument(content: bytes, places: dict[str, range]) -> list[Value]:
    """An argument; aligned words that are addresses in a tensor stand for it: other words may be two small numbers.

    Raises:
        FlashcoreError: it may be a tensor map.
    """
    if len(content) >= _MAP_BYTES:
        raise FlashcoreError(
            f"expected an argument below {_MAP_BYTES} bytes, found {len(content)}: it may be a tensor map"
        )
    addresses = [
        Value(at=8 * i, tensor=name, offset=word - place.start)
        for i, word in enumerate(memoryview(content[: len(content) & -8]).cast("Q"))
        for name, place in places.items()
        if word in place
    ]
    return addresses if addresses and len(content) == 8 else [Value(hex=content.hex()), *addresses]
