"""Records the launches of foreign CUDA launchers without a GPU, from given arguments and a simulated device.

The launcher must not read from the tensors.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.build.binding import c_type
from flashcore.build.launch_plan import LaunchRecord
from flashcore.chips import devices, occupancy
from flashcore.machine.gpu import Gpu
from flashcore.model.cause import Cause, as_json
from flashcore.model.causes import (
    LAUNCH_REFUSED,
    NOT_CAPTURABLE,
    OTHER_STREAM,
    STREAM_NOT_JOINED,
    DoesNotFit,
    NotOptedIn,
    PlanRefused,
    PlanUnknown,
)
from flashcore.model.groups import picked
from flashcore.model.record import Artifact, Launch
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
_FIRST_ADDRESS, DISTANCE, WORKSPACE = 1 << 40, 1 << 36, 1 << 50
#: Shared memory that a launch may have, and the largest cluster, without an attribute of the kernel.
_SMEM_PER_BLOCK, _PORTABLE = 48 * 1024, 8
#: ``flashcore_fault`` of recorder.cpp; from the number on, only what every call does is one.
_FAULTS, _NOT_ONCE = (PlanUnknown, OTHER_STREAM, STREAM_NOT_JOINED, OTHER_STREAM, NOT_CAPTURABLE), 3
_BLOCKS_PER_SM = 2  # of ``flashcore_question``
#: ``cudaFuncAttribute``
_DYNAMIC_SMEM, _NON_PORTABLE = 8, 14
_SMEM_OPTIN = 97  # of ``cudaDeviceAttr``
#: ``cudaError_t``; the last are the runtime's where it has no GPU.
_INVALID_VALUE, _INVALID_CONFIGURATION, _NO_GPU = 1, 9, (3, 34, 35, 46, 100)


class _Functions(ctypes.Structure):
    """``flashcore_device`` of recorder.cpp."""

    _fields_ = (
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchRecord), ctypes.POINTER(ctypes.c_void_p))),
        ("set_attribute", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)),
        ("ask", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64)),
        ("report", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)),
    )


class LauncherDevice:
    """A device of an arch as a launcher sees it: which launches it accepts, and what it answers.

    ``launches`` and the bytes of their ``arguments`` are those of the last call.

    Args:
        attributes, kernels: what the functions of these names return.
    """

    def __init__(self, arch: str, attributes: Mapping[int, int], kernels: Mapping[str, Any]) -> None:
        self._arch, self._attributes, self._kernels = arch, attributes, kernels
        self._set: dict[tuple[str, int], int] = {}
        self._cause: Cause | None = None
        self._refused: tuple[int, Cause] | None = None
        self.launches: list[dict[str, Any]] = []
        self.arguments: list[list[bytes]] = []
        kinds: Any = dict(_Functions._fields_)
        calls = {f: kinds[f](getattr(self, f"_{f}")) for f in ("launch", "set_attribute", "ask", "report")}
        self._functions = _Functions(**calls)

    def call(self, library: Any, arguments: ctypes.Structure, dims: Any) -> Cause | None:
        """Calls the launcher twice, since it may allocate and prepare once; returns why its launches cannot work."""
        text = ctypes.c_char_p()
        workspace = ctypes.c_void_p(WORKSPACE if workspace_bytes(library, dims) else None)
        given = ctypes.byref(arguments), dims, workspace, ctypes.byref(self._functions), ctypes.byref(text)
        for self._is_first in (True, False):
            self.launches, self.arguments, self._cause, self._refused = [], [], None, None
            if cause := self._outcome(library.flashcore_record(*given), text):
                return cause
        return None

    def _outcome(self, code: int, text: ctypes.c_char_p) -> Cause | None:
        if self._cause:
            return self._cause
        # After a refused launch, a launcher that reads the error may launch something else.
        if self._refused and (code or self._refused[0] == len(self.launches)):
            return self._refused[1]
        if code in _NO_GPU:
            return PlanUnknown("a function of the CUDA runtime")
        if code:
            return PlanRefused((text.value or b"refused").decode(errors="replace"))
        # A launch that fails ends the capture of a graph, also if its error is read (seen with CUDA 13.0 on an H200).
        return NOT_CAPTURABLE("a launch that fails") if self._refused and not self._is_first else None

    def _launch(self, record: Any, arguments: Any) -> int:
        launch = record.contents.as_dict()
        kernel, allowed = self._kernel(launch["kernel"])
        if launch["cluster"] == (1, 1, 1):  # the one that the kernel's source fixes
            launch["cluster"] = tuple(kernel.get(f"required_cluster_{axis}", 1) for axis in "xyz")
        cause = occupancy.launch_refusal(self._arch, Launch(**launch), kernel)
        if not isinstance(cause, DoesNotFit):
            cause = None
            if launch["dynamic_smem"] > allowed:
                cause = NotOptedIn("MaxDynamicSharedMemorySize", launch["dynamic_smem"], allowed)
            elif math.prod(launch["cluster"]) > _PORTABLE and not self._set.get((launch["kernel"], _NON_PORTABLE)):
                cause = NotOptedIn("NonPortableClusterSizeAllowed", 1, 0)
        if cause:
            self._refused = len(self.launches), LAUNCH_REFUSED(canonical(launch["kernel"]), cause)
            return _INVALID_VALUE if isinstance(cause, NotOptedIn) else _INVALID_CONFIGURATION
        self.launches.append(launch)
        sizes = enumerate(kernel.get("parameters", ()))
        self.arguments.append([ctypes.string_at(arguments[i], size) for i, size in sizes])
        return 0

    def _kernel(self, name: str) -> tuple[Mapping[str, Any], int]:
        """A kernel's facts, as far as they are known, and its most dynamic shared memory."""
        facts = self._kernels.get(name) or self._kernels.get(canonical(name)) or {"registers": 0, "static_smem": 0}
        return facts, self._set.get((name, _DYNAMIC_SMEM), _SMEM_PER_BLOCK - int(facts["static_smem"]))

    def _set_attribute(self, kernel: bytes, attribute: int, value: int) -> int:
        facts, _ = self._kernel(name := kernel.decode())
        most = self._attributes.get(_SMEM_OPTIN, math.inf) - facts["static_smem"]
        if attribute == _DYNAMIC_SMEM and not 0 <= value <= most:
            return _INVALID_VALUE
        self._set[name, attribute] = value
        return 0

    def _ask(self, question: int, kernel: bytes | None, number: int, dynamic_smem: int) -> int:
        if kernel is None:
            return int(self._attributes.get(number, -1))
        facts, allowed = self._kernel(kernel.decode())
        if "stack_bytes" not in facts:
            return -1
        registers, static_smem = facts["registers"], facts["static_smem"]
        bound = facts.get("max_threads", occupancy.MAX_THREADS)

        def blocks(threads: int, smem: int = 0) -> int | None:
            fits = threads <= bound and smem <= allowed
            return occupancy.occupancy(self._arch, threads, registers, static_smem, smem).blocks_per_sm if fits else 0

        if question == _BLOCKS_PER_SM:
            return -1 if (answer := blocks(number, dynamic_smem)) is None else answer
        threads = next((n for n in range(bound, 0, -1) if blocks(n) != 0), 0)
        return int((static_smem, facts["stack_bytes"], threads, registers, allowed)[number])

    def _report(self, fault: int, subject: bytes) -> None:
        if self._cause is None and not (self._is_first and fault >= _NOT_ONCE):
            text = subject.decode(errors="replace")
            self._cause = _FAULTS[fault](text if " " in text else canonical(text))


def recording(problem: Problem, shape: Shape, artifact: Artifact) -> dict[str, Any]:
    """See :class:`flashcore.build.launch_plan.Recorder`."""
    return {
        "by": f"{__name__}:record",
        "arch": artifact.arch,
        "arguments": values(problem.arguments, shape.params),
        "attributes": attributes(artifact.arch),
        "kernels": kernels(artifact.cubin or "", artifact.arch),
    }


def record(library: Any, recording: Mapping[str, Any], dims: Any) -> dict[str, Any]:
    """Calls the launcher in a child process; returns the plan as JSON."""
    # An exception in a function that C++ calls must not be an answer.
    sys.unraisablehook = lambda error: (sys.__unraisablehook__(error), sys.stderr.flush(), os._exit(1))
    device = LauncherDevice(*(recording[name] for name in ("arch", "attributes", "kernels")))
    cause = device.call(library, struct(recording["arguments"]), dims)
    return {
        "cause": cause and as_json(cause),
        "workspace": workspace_bytes(library, dims),
        "launches": [] if cause else device.launches,
    }


def workspace_bytes(library: Any, dims: Any) -> int:
    """The size of a variant's workspace."""
    library.flashcore_workspace_bytes.restype = ctypes.c_uint64
    return int(library.flashcore_workspace_bytes(dims))


@functools.lru_cache(maxsize=8)  # a build's path is that of its content
def kernels(file: str, arch: str) -> dict[str, dict[str, Any]]:
    """A cubin's kernels by mangled and by displayed name: resources, launch bounds, and the sizes of parameters."""
    names = ("registers", "static_smem", "stack_bytes", "parameters")
    by_name = {k.name: picked(k, *names) | k.demands for k in cubin.read(Path(file), arch).kernels}
    return {canonical(name): facts for name, facts in by_name.items()} | by_name


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


@functools.lru_cache(maxsize=8)
def attributes(arch: str) -> dict[int, int]:
    """The known attributes of a device of that arch, by the numbers of ``cudaDeviceAttr``.

    The number of SMs is that of this machine's GPU if it has this arch, else of the largest GPU in the device table.
    """
    number, limits, gpu = int(arch[3:].rstrip("af")), occupancy.limits(arch), Gpu.find()
    answers = {1: occupancy.MAX_THREADS, 9: 1 << 16, 10: occupancy.WARP, 31: 1, 41: 1, 95: 1, 115: 1}
    answers |= dict(zip(range(2, 8), (*occupancy.MAX_BLOCK, *occupancy.MAX_GRID), strict=True))
    answers |= {12: occupancy.REGISTERS_PER_SM, 82: occupancy.REGISTERS_PER_SM, 75: number // 10, 76: number % 10}
    answers |= {8: _SMEM_PER_BLOCK, 120: int(number >= 90)}
    if limits is not None:
        answers |= {39: 32 * limits.warps, 106: limits.blocks, 111: limits.reserved}
        answers |= {_SMEM_OPTIN: 1024 * limits.smem_block, 81: 1024 * limits.smem}
    if of_arch := [d for d in devices.load().values() if d.arch.rstrip("af") == arch.rstrip("af")]:
        largest = max(of_arch, key=lambda d: d.sms)
        answers |= {16: largest.sms, 38: int(largest.l2_mib * 2**20)}
    if gpu is not None and gpu.arch_of((arch,)):
        answers[16] = gpu.sms
    return answers
