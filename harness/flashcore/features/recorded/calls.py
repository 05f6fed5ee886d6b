"""Runs the host code of a compiled CUDA variant once, without a GPU, and returns its launches with their arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashcore.build.ninja_graph import RECORDER_SOURCE
from flashcore.build.nvcc_command import HARNESS_INCLUDE
from flashcore.build.unit import OBJECT
from flashcore.features.recorded import launchers
from flashcore.machine import toolchain
from flashcore.model.cause import Cause
from flashcore.model.record import Artifact
from flashcore.model.suite import Argument, Params
from flashcore.suites.problems import dimensions


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What one call launches, on placeholder addresses.

    Args:
        launches: the fields of each :class:`flashcore.model.record.Launch`; its ``kernel`` is the mangled name.
        arguments: of each launch, the bytes of each parameter of its kernel.
        addresses: where each present tensor and, if the variant has one, its ``workspace`` begins.
        workspace: bytes.
    """

    launches: Sequence[Mapping[str, Any]]
    arguments: Sequence[Sequence[bytes]]
    addresses: Mapping[str, int]
    workspace: int


def recorded_call(artifact: Artifact, arguments: Sequence[Argument], params: Params) -> RecordedCall | Cause:
    """The call of a variant, or why its launches cannot work.

    Args:
        artifact: a successful build of a CUDA file, with host code.
        arguments: the operator's. Tensors are contiguous.
        params: the dimensions, and numbers of the operator; others have their default, else 1.

    Raises:
        CapabilityError: there is no compiler.
    """
    members = launchers.values(arguments, params)
    tensors = [a.name for a in arguments if a.kind == "tensor" and not a.absent(params)]
    addresses = dict(zip(tensors, (int(value) for kind, value in members if "*" in kind and value), strict=True))
    dims = dimensions(arguments)
    sizes = (ctypes.c_int64 * len(dims))(*(int(params[dim]) for dim in dims))
    library = _recording(artifact)
    if workspace := launchers.workspace_bytes(library, sizes):
        addresses["workspace"] = launchers.WORKSPACE
    arch, cubin = artifact.arch, artifact.cubin or ""
    device = launchers.LauncherDevice(arch, launchers.attributes(arch), launchers.kernels(cubin, arch))
    if cause := device.call(library, launchers.struct(members), sizes):
        return cause
    return RecordedCall(device.launches, device.arguments, addresses, workspace)


def _recording(artifact: Artifact) -> ctypes.CDLL:
    """A variant's host code with a runtime that records launches."""
    nvcc, host_code = toolchain.find_nvcc(), Path(artifact.plan_library or "").with_name(OBJECT)
    flags = (
        *("-std=c++17", "-shared", "-fPIC", f"-I{HARNESS_INCLUDE}", f"-I{nvcc.root / 'include'}", str(host_code)),
        *("-Wl,-z,muldefs", "-Wl,-Bsymbolic", str(nvcc.cudart_static), "-ldl", "-lrt", "-lpthread"),
    )
    return ctypes.CDLL(str(toolchain.host_program(RECORDER_SOURCE, flags, f"recorded-{artifact.host}.so")))
