"""Says what this machine can do, stage by stage, and how to mend what it cannot."""

from __future__ import annotations

from collections.abc import Callable

from flashcore.errors import FlashcoreError
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu


def examine() -> tuple[list[str], bool]:
    """One line a capability, and whether the machine can at least build."""
    lines: list[str] = []
    able: dict[str, bool] = {}

    def look(name: str, find: Callable[[], str], needed_for: str) -> None:
        try:
            lines.append(f"ok       {name}: {find()}")
            able[name] = True
        except FlashcoreError as error:
            lines.append(f"missing  {name} ({needed_for}): {error}")
            able[name] = False

    def nvcc() -> str:
        found = toolchain.find_nvcc()
        return f"{found.version} at {found.path}, runtime {found.cudart_static.name}"

    look("nvcc", nvcc, "build")
    look("host compiler", lambda: str(toolchain.find_cxx()), "build")
    look("ninja", lambda: str(toolchain.find_ninja()), "build")
    mend = "pip install nvidia-cuda-nvdisasm==13.2.51"
    look("nvdisasm", lambda: str(toolchain.find_tool("nvdisasm", mend)), "SASS counts")
    look("torch", _torch, "operators, check, bench, profile")
    look("GPU", _gpu, "check, bench, profile")
    look("ncu", _ncu, "profile")
    look("compute-sanitizer", _sanitizer, "sanitize")
    for package, use in (("nvtx", "profile"), ("numpy", "bench"), ("plotly", "report"), ("jinja2", "report")):
        look(package, lambda package=package: _package(package), use)  # type: ignore[misc]
    can_build = able["nvcc"] and able["host compiler"] and able["ninja"]
    can = ["build, static gate"] if can_build else []
    if can_build and able["torch"] and able["GPU"]:
        can.append("check, bench")
        if able["ncu"] and able["nvtx"]:
            can.append("profile (if counters may be read)")
    if able["plotly"] and able["jinja2"]:
        can.append("report")
    lines.append(f"so this machine can: {'; '.join(can) or 'nothing yet'}")
    return lines, can_build


def _torch() -> str:
    from flashcore.errors import CapabilityError

    root = toolchain.torch_root()
    if root is None:
        raise CapabilityError("no torch", "pip install torch")
    return f"{toolchain.version_of('torch')} at {root}"


def _sanitizer() -> str:
    from flashcore.stages.sanitize import sanitize

    program = sanitize.find_sanitizer()
    return f"{sanitize.version(program) or 'of an unknown version'} at {program}"


def _gpu() -> str:
    from flashcore.errors import CapabilityError

    gpu = Gpu.find()
    if gpu is None:
        raise CapabilityError(
            "no CUDA device", "use a machine with an NVIDIA GPU and its driver; the rest works without"
        )
    return f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}, {gpu.sms} SMs, driver {gpu.driver}"


def _ncu() -> str:
    from flashcore.machine import ncu

    found = ncu.find_ncu()
    return f"{ncu.version(found)} at {found}"


def _package(name: str) -> str:
    from flashcore.errors import CapabilityError

    version = toolchain.version_of(name)
    if version is None:
        raise CapabilityError(f"no {name}", f"pip install {name}")
    return version
