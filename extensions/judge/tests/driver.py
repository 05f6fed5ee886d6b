"""Kernels compiled to a cubin, and the CUDA driver's stand-in beside them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashcore.machine import toolchain
from flashcore.machine.toolchain import Nvcc
from flashcore_judge.launcher.plan import Plan

KERNELS = """
#include <cuda.h>
struct Pair { const char* from; int bytes; };
extern "C" __global__ void copy_bytes(const char* from, char* to, int bytes) {
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void forge_copy(const char* from, char* to, int bytes) { to[threadIdx.x] = from[bytes]; }
extern "C" __global__ void __launch_bounds__(256) inc_bytes(const char* from, char* to, int bytes) {
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) ++to[i];
}
extern "C" __global__ void takes_map(Pair pair, const __grid_constant__ CUtensorMap map, char* to) {
  to[threadIdx.x] = reinterpret_cast<const char*>(&map)[threadIdx.x] + pair.from[pair.bytes];
}
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with ``k.cubin`` and the stand-in, and the environment of a process that meets it."""

    folder: Path
    environment: Mapping[str, str]

    def log(self) -> list[str]:
        """Each kernel that ran since the last look."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.is_file() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture(scope="session")
def made(compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "k.cu").write_text(KERNELS)
    subprocess.run([compiler.path, "-arch=sm_90a", "-cubin", folder / "k.cu", "-o", folder / "k.cubin"], check=True)
    header = compiler.root / "include"
    if not (header / "cuda.h").is_file():
        pytest.skip("headers: no cuda.h on this machine")
    command = [
        str(toolchain.find_cxx()),
        "-xc",
        "-shared",
        "-fPIC",
        f"-I{header}",
        str(Path(__file__).with_name("libcuda.c")),
    ]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


@pytest.fixture
def machine(made: Path, tmp_path: Path) -> Callable[..., Machine]:
    (tmp_path / "k.cubin").symlink_to(made / "k.cubin")

    def machine(**more: str) -> Machine:
        given = {"LD_LIBRARY_PATH": str(made), "LIBCUDA_PARAMETERS": "8,8,4", "LIBCUDA_LOG": str(tmp_path / "log")}
        return Machine(tmp_path, {**os.environ, **given, **more})

    return machine


def plan(kernel: str = "copy_bytes", role: str = "output", **launch: Any) -> Plan:
    """One launch that reads ``x``, 256 bytes, and writes ``y``."""
    arguments = [[{"tensor": "x"}], [{"tensor": "y"}], [{"hex": "00010000"}]]
    sizes = {"grid": [1, 1, 1], "block": [128, 1, 1]}
    tensors = {
        "x": {"dtype": "uint8", "sizes": [256]},
        "y": {"dtype": "uint8", "sizes": [256], "role": role},
    }
    launches = [{"cubin": "k.cubin", "kernel": kernel, "arguments": arguments, **sizes, **launch}]
    return Plan.model_validate({"tensors": tensors, "launches": launches})
