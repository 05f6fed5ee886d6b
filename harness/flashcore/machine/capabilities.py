"""Errors for missing parts of a machine, each with a hint how to fix it.

:func:`lacking` makes the error for a missing part; :func:`reported_in` detects one in a child process's output.
"""

from __future__ import annotations

import re

from flashcore.errors import CapabilityError, installable

#: Part → the message if it is missing, and the hint.
_LACKS = {
    "nvcc": (
        "no nvcc found",
        "install CUDA 13, or: pip install 'flashcore-harness[cuda]', or name one with NVCC=/path/to/nvcc",
    ),
    "cudart": (
        "no libcudart_static.a found",
        "pip install 'flashcore-harness[cuda]', or install the toolkit's runtime headers",
    ),
    "g++": ("no g++ found", "install g++ (Debian: apt-get install g++)"),
    "ninja": ("no ninja found", "pip install ninja"),
    "nvdisasm": ("no nvdisasm found", "pip install 'flashcore-harness[disassembler]'"),
    "triton": ("no Triton on this machine", "pip install 'flashcore-harness[triton]'"),
    "gpu": (
        "no CUDA GPU that this process can use",
        "run on a machine with an NVIDIA GPU, its driver and a CUDA build of torch",
    ),
    "ncu": (
        "no Nsight Compute: ncu is neither on PATH nor in /usr/local/cuda/bin or /opt/nvidia/nsight-compute",
        "install nsight-compute (with the CUDA toolkit, or from the distribution), or put its ncu on PATH",
    ),
    "compute-sanitizer": (
        "no compute-sanitizer: neither on PATH nor in CUDA_HOME or /usr/local/cuda",
        "install CUDA's compute-sanitizer (cuda-sanitizer-13-0, or pip's nvidia-cuda-sanitizer-api), or put it on PATH",
    ),
    "counters": (
        "no permission to read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "run as root or with CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN), or let every user read them: put "
        "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/nvidia.conf and reboot",
    ),
    "free counters": (
        "another tool is reading this GPU's performance counters",
        "stop it (dcgm: systemctl stop nvidia-dcgm, or dcgmi profile --pause), then resume",
    ),
    "fitting ncu": (
        "this Nsight Compute does not support the driver or the GPU",
        "install the Nsight Compute of the driver's CUDA release, or a newer one, and put its ncu on PATH",
    ),
    "driver": (
        "Nsight Compute cannot connect to the CUDA driver",
        "install the NVIDIA driver (a container: --gpus all); keep CUDA's stubs out of LD_LIBRARY_PATH",
    ),
}

#: (log pattern, missing part). Messages that only ncu prints begin with ``==ERROR==``.
_REPORTED = (
    (r"ERR_NVGPUCTRPERM", "counters"),
    (
        r"==ERROR==.*(?:LibraryNotLoaded|not compatible with Nsight Compute|driver version is insufficient"
        r"|driver is not compatible|Profiling is not supported on|unsupported GPU)",
        "fitting ncu",
    ),
    (r"==ERROR==.*failed to connect to the CUDA driver", "driver"),
    (
        r"No CUDA GPUs are available|no CUDA-capable device"
        r"|Found no NVIDIA driver|not compiled with CUDA enabled",
        "gpu",
    ),
    (r"==ERROR==.*concurrently collecting profiling data", "free counters"),
)


def lacking(name: str, detail: str = "", *, what: str = "") -> CapabilityError:
    """The error for a missing part, by its name in the table above or the name of a Python package.

    Args:
        detail: evidence, appended to the message.
        what: replaces the table's message, for example if the part is installed but unusable.
    """
    message, hint = _LACKS.get(name, (f"the Python package {name} is missing", f"pip install {installable(name)}"))
    return CapabilityError((what or message) + (f": {detail}" if detail else ""), hint)


def reported_in(log: str) -> CapabilityError | None:
    """The error for a missing part that the log reports; ``None`` if it reports none."""
    for pattern, name in _REPORTED:
        if match := re.search(pattern, log):
            line = next((x.strip() for x in log.splitlines() if match[0] in x), match[0])
            return lacking(name, line[:300])
    return None
