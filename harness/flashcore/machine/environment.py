"""The machine and tool versions that a run records."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from flashcore import __version__
from flashcore.errors import CapabilityError
from flashcore.machine import git, toolchain
from flashcore.machine.gpu import Gpu, limits
from flashcore.model import plugin
from flashcore.model.record import Environment

#: Variables by which tests replace GPUs and their clock: a record names them, so that no such run passes for a GPU's.
STAND_INS = ("FLASHCORE_EXECUTOR", "FLASHCORE_TIMER")


def of_this_machine(
    root: Path, nvcc: toolchain.Nvcc | None, gpu: Gpu | None, arch: str | None, ncu: str | None, uuid: str = ""
) -> Environment:
    """This machine, with its tools; ``uuid`` is that of its only GPU."""
    commit, dirty = commit_of(root)
    packages = {name: toolchain.version_of(name) for name in ("nvtx", "numpy", "triton", "nvidia-cudnn-cu13")}
    languages = {name: plugin.resolve(language) for name, language in plugin.entries("languages")}
    packages |= {name: language.version for name, language in languages.items()}
    prefixes = tuple(language.variables for language in languages.values())
    named = (*toolchain.VARIABLES, *STAND_INS)
    libraries = {name: version for name, version in packages.items() if version}
    properties: dict[str, Any] = {}
    if gpu:
        properties = {f"gpu_{name}": getattr(gpu, name) for name in ("sms", "memory_bytes", "l2_bytes")}
        properties |= {"gpu": gpu.name, "gpu_sm_clock_mhz": gpu.max_sm_clock_mhz, "driver": gpu.driver}
    if uuid:
        properties |= {"gpu_uuid": uuid, "gpu_limits": limits(uuid)}
    return Environment(
        host=os.environ.get("FLASHCORE_HOST", platform.node()) or None,  # empty: not recorded
        os=platform.platform(),
        cpu=_cpu(),
        python=platform.python_version(),
        harness=__version__,
        gpu_arch=arch,
        **properties,
        cuda_runtime=toolchain.version_of("nvidia-cuda-runtime"),
        nvcc=nvcc.version if nvcc else None,
        ncu=ncu,
        torch=toolchain.version_of("torch"),
        libraries=libraries,
        git_commit=commit,
        git_dirty=dirty,
        variables={
            name: value
            for name, value in sorted(os.environ.items())
            if value and (name in named or name.startswith(prefixes)) and not name.endswith("CACHE_DIR")
        },
    )


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def commit_of(root: Path) -> tuple[str | None, bool | None]:
    """The git commit of ``root``, and whether tracked files differ from it. ``FLASHCORE_COMMIT=COMMIT[-dirty]``
    replaces it in a tree without git history (a container, a host without git)."""
    if commit := os.environ.get("FLASHCORE_COMMIT"):
        return commit.removesuffix("-dirty"), commit.endswith("-dirty") or None
    try:
        head = git.run(root, "rev-parse", "HEAD")
        if head.returncode != 0:
            return None, None
        return head.stdout.strip(), bool(git.run(root, "status", "--porcelain", "--untracked-files=no").stdout.strip())
    except CapabilityError:
        return None, None
