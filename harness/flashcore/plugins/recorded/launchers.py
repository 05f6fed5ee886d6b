"""Records the launches of foreign CUDA launchers without a GPU, from given arguments and device properties.

The launcher must not read from the tensors.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.chips import devices, occupancy
from flashcore.measure.build.binding import c_type
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.record import Artifact, Plan
from flashcore.model.suite import Argument, Problem, Shape
from flashcore.readers import cubin
from flashcore.readers.kernel_names import canonical

#: C++ type of a member of the generated ``flashcore_arguments`` → its ctypes type.
_FIELDS: Mapping[str, Any] = {
    "void*": ctypes.c_void_p,
    "const void*": ctypes.c_void_p,
    "std::int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}
#: Tensors are far apart, and aligned like torch's.
_FIRST_ADDRESS, DISTANCE = 1 << 40, 1 << 36
#: Static shared memory available to every block, in bytes.
_SMEM_PER_BLOCK = 48 * 1024


class Device(ctypes.Structure):
    """``flashcore_device`` of launcher.h."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in ("major", "minor", "sms", "threads_per_sm", "smem_per_block", "smem_optin", "smem_per_sm")
    )


def recording(problem: Problem, shape: Shape, arch: str) -> dict[str, Any]:
    """See :class:`flashcore.measure.build.launch_plan.Recorder`."""
    arguments, numbers = values(problem.arguments, shape.params), device(arch)
    return {"by": f"{__name__}:record", "key": cache_key(arguments, numbers), "arguments": arguments, "device": numbers}


def cache_key(arguments: Sequence[tuple[str, float | int]], device: Sequence[int]) -> list[str | float | int]:
    """What a recorded plan depends on besides dimensions: numbers, absent tensors and the device."""
    values = [
        value if "*" not in kind else f"no {i}"
        for i, (kind, value) in enumerate(arguments)
        if "*" not in kind or not value
    ]
    return ["recorded", *values, *device]


def record(library: Any, recording: Mapping[str, Any], dims: Any, *out: Any) -> int:
    """Calls the launcher in a child process. Returns the number of launches, or a negative error."""
    if not hasattr(library, "flashcore_recorded_plan"):
        return int(library.flashcore_launch_plan(dims, *out))
    arguments, numbers = struct(recording["arguments"]), Device(*recording["device"])
    return int(library.flashcore_recorded_plan(ctypes.byref(arguments), dims, ctypes.byref(numbers), *out))


def completed(plan: Plan, artifact: Artifact) -> Plan:
    """The plan with the cluster sizes fixed in kernels' sources, which launch calls do not name."""
    if artifact.cubin is None:
        return plan
    kernels = cubin.read(Path(artifact.cubin), artifact.arch).kernels
    fixed = {canonical(k.name): k.cluster for k in kernels if k.cluster}
    return replace(plan, launches=tuple(replace(x, cluster=fixed.get(x.kernel, x.cluster)) for x in plan.launches))


def values(arguments: Sequence[Argument], params: Mapping[str, Any]) -> list[tuple[str, float | int]]:
    """The type and value of each member of ``flashcore_arguments``.

    Numbers are from the shape's parameters, else their defaults, else 1. Tensors are contiguous; a parameter ``false``
    makes an optional one absent."""
    members: list[tuple[str, float | int]] = []
    for i, argument in enumerate(arguments):
        if argument.kind != "tensor":
            members.append((c_type(argument), params.get(argument.name, 1 if (d := argument.default) is None else d)))
            continue
        present, sizes = not argument.absent(params), argument.sizes(params)
        members.append((c_type(argument), _FIRST_ADDRESS + i * DISTANCE if present else 0))
        if argument.strides:
            strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
            members += [("std::int64_t", stride if present else 0) for stride in strides]
    return members


def struct(given: Sequence[tuple[str, float | int]]) -> ctypes.Structure:
    """The arguments as a C structure."""
    fields = tuple((f"a{i}", _FIELDS[kind]) for i, (kind, _) in enumerate(given))
    layout = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
    return layout(*(value if _FIELDS[kind] is ctypes.c_double else int(value) for kind, value in given))  # type: ignore[no-any-return]


def device(arch: str) -> tuple[int, ...]:
    """The fields of a :class:`Device` of that arch; unknown ones are 0.

    The number of SMs is that of this machine's GPU if it has this arch, else of the largest GPU in the device table.
    """
    number, limits, gpu = int(arch[3:].rstrip("af")), occupancy.limits(arch), Gpu.find()
    sms_of_arch = [d.sms for d in devices.load().values() if d.arch.rstrip("af") == arch.rstrip("af")]
    sms = gpu.sms if gpu is not None and gpu.arch_of((arch,)) else max(sms_of_arch, default=0)
    sizes = (0, 0, 0, 0)
    if limits is not None:
        sizes = (32 * limits.warps, _SMEM_PER_BLOCK, 1024 * limits.smem_block, 1024 * limits.smem)
    return (number // 10, number % 10, sms, *sizes)
