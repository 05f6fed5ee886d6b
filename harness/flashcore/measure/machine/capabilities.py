"""Errors for what a machine lacks, each with the way to fix it.

:func:`lacking` makes the error for a missing part; :func:`reported_in` finds one in the output of a child process.
"""

from __future__ import annotations

import re

from flashcore.errors import CapabilityError

#: A part → the message where it is missing, and how to fix it.
_LACKS = {
    "nvcc": (
        "no nvcc found",
        "install CUDA 13, or: pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 "
        "nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.88 nvidia-cuda-cccl==13.0.85, "
        "or name one with NVCC=/path/to/nvcc",
    ),
    "cudart": (
        "no libcudart_static.a found",
        "pip install nvidia-cuda-runtime==13.0.88, or install the toolkit's runtime headers",
    ),
    "g++": ("no g++ found", "install g++ (Debian: apt-get install g++)"),
    "ninja": ("no ninja found", "pip install ninja"),
    "nvdisasm": ("no nvdisasm found", "pip install nvidia-cuda-nvdisasm==13.2.51"),
    "triton": ("no Triton on this machine", "pip install 'flashcore-harness[triton]' (triton==3.6.0)"),
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
    "metric lists": (
        "no libnvperf_host.so found, which lists the metrics of chips",
        "pip install nvidia-cuda-cupti==13.0.85, or install Nsight Compute",
    ),
    "counters": (
        "no permission to read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "run as root or with CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN), or let every user read them: put "
        "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/nvidia.conf and reboot",
    ),
    "free counters": (
        "another tool is reading this GPU's performance counters",
        "end it (dcgm: systemctl stop nvidia-dcgm, or dcgmi profile --pause), then resume",
    ),
    "fitting ncu": (
        "this Nsight Compute does not fit the driver or the GPU",
        "install the Nsight Compute of the driver's CUDA release, or a newer one, and put its ncu on PATH",
    ),
    "driver": (
        "Nsight Compute finds no CUDA driver",
        "install the NVIDIA driver (a container: --gpus all); keep CUDA's stubs out of LD_LIBRARY_PATH",
    ),
}

#: A pattern of logs → the missing part. Messages that only ncu prints begin with its mark.
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
    """The error that reports a missing part: of the list above, or a Python package.

    Args:
        detail: how the lack was noticed.
        what: the message in place of the usual one, where the part is there but cannot be used.
    """
    message, hint = _LACKS.get(name, (f"the Python package {name} is missing", f"pip install {name}"))
    return CapabilityError((what or message) + (f": {detail}" if detail else ""), hint)


def reported_in(log: str) -> CapabilityError | None:
    """The error for a part whose lack a log reports."""
    for pattern, name in _REPORTED:
        if match := re.search(pattern, log):
            line = next((x.strip() for x in log.splitlines() if match[0] in x), match[0])
            return lacking(name, line[:300])
    return None
