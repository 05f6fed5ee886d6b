"""The machine and the tools that a run records."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from flashcore import __version__
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.record import Environment


def of_this_machine(
    root: Path, nvcc: toolchain.Nvcc | None, gpu: Gpu | None, arch: str | None, ncu: str | None
) -> Environment:
    """The machine and tools of a run."""
    commit, dirty = _git(root)
    cuda = toolchain.version_of("nvidia-cuda-runtime")
    libraries = {
        name: version
        for name in ("nvtx", "numpy", "triton", "nvidia-cudnn-cu13")
        if (version := toolchain.version_of(name))
    }
    return Environment(
        host=os.environ.get("FLASHCORE_HOST", platform.node()) or None,  # under another name; empty: not recorded
        os=platform.platform(),
        cpu=_cpu(),
        python=platform.python_version(),
        harness=__version__,
        gpu=gpu.name if gpu else None,
        gpu_arch=arch,
        gpu_sms=gpu.sms if gpu else None,
        gpu_memory_bytes=gpu.memory_bytes if gpu else None,
        gpu_l2_bytes=gpu.l2_bytes if gpu else None,
        gpu_sm_clock_mhz=gpu.max_sm_clock_mhz if gpu else None,
        driver=gpu.driver if gpu else None,
        cuda_runtime=cuda,
        nvcc=nvcc.version if nvcc else None,
        ncu=ncu,
        torch=toolchain.version_of("torch"),
        libraries=libraries,
        git_commit=commit,
        git_dirty=dirty,
    )


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def _git(root: Path) -> tuple[str | None, bool | None]:
    """The commit that ``root`` lies in and whether anything differs from it. ``FLASHCORE_COMMIT`` names it
    for a tree that was copied without its history (a container, a machine without git)."""
    git = shutil.which("git")
    given = os.environ.get("FLASHCORE_COMMIT")
    if git is None:
        return given, None

    def ask(*words: str) -> str | None:
        result = toolchain.ask([git, "-C", root, *words])
        return result.stdout.strip() if result.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return given, None
    return commit, bool(ask("status", "--porcelain", "--untracked-files=no"))
