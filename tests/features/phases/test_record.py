"""Builds with markers and without."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flashcore.build.nvcc_command import HARNESS_INCLUDE
from flashcore.features.phases import record
from flashcore.features.phases.timeline import BLOCKS, WARPS, layout
from flashcore.machine import toolchain
from flashcore.model.progress import silent
from flashcore.model.settings import Settings
from flashcore.readers import cubin
from flashcore.stages.compiling import compile_all
from tests.conftest import ROOT, compile_one, hide_disassembler

SOFTMAX = ROOT / "examples" / "row_softmax"
MARKER = r"(?m)^ *FLASHCORE_(?:ROLE|PHASE)\(.*\n|^#include <flashcore/phases.cuh>\n"
KERNEL = """#include <flashcore/phases.cuh>
extern "C" __global__ void kernel(float* x) {{
  FLASHCORE_ROLE(phases, "all");
  FLASHCORE_PHASE(phases, "{name}");
  x[threadIdx.x] *= 2;
}}
"""


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
def test_disabled_markers_are_no_machine_code(compiler: toolchain.Nvcc, arch: str, tmp_path: Path) -> None:
    copy = shutil.copytree(SOFTMAX, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    codes = []
    for markers in (True, False):
        if not markers:
            source = copy / "warp.cu"
            text = source.read_text(encoding="utf-8")
            bare = re.sub(MARKER, "", text)
            assert bare.count("hases") <= text.count("hases") - 5 and "FLASHCORE_PHASE" not in bare
            source.write_text(bare, encoding="utf-8")
        (artifact,) = compile_one(copy, tmp_path / f"build{markers}", "warp", arch).artifacts
        assert artifact.cubin, artifact.message
        codes.append(cubin.code_of(Path(artifact.cubin).read_bytes()))
    assert codes[0] == codes[1]


def compiled(compiler: toolchain.Nvcc, folder: Path, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "kernel.cu").write_text(KERNEL.format(name=name), encoding="utf-8")
    words = [str(compiler.path), "-std=c++17", "-arch=sm_90a", "-cubin", "kernel.cu", "-o", "kernel.cubin", *flags]
    command = [*words, f"-I{HARNESS_INCLUDE}", f"-I{record.INCLUDE}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_enabled_markers_are_machine_code(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    codes = []
    for flags in ((), ("-DFLASHCORE_PHASES=16",)):
        done = compiled(compiler, tmp_path, "load", *flags)
        assert done.returncode == 0, done.stderr
        codes.append(cubin.code_of((tmp_path / "kernel.cubin").read_bytes()))
    assert codes[0] != codes[1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("thirteen_char", "at most 12"), ("Load", "only a-z"), ("two words", "only a-z"), ("", "not empty")],
)
def test_the_compiler_refuses_a_wrong_name(compiler: toolchain.Nvcc, name: str, reason: str, tmp_path: Path) -> None:
    done = compiled(compiler, tmp_path, name, "-DFLASHCORE_PHASES=16")
    assert done.returncode != 0 and reason in done.stderr


def test_a_marked_library_gives_its_buffer(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All libraries of a variant export the same functions; the one of its plan needs no torch."""
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)
    hide_disassembler(monkeypatch)
    context = record.opened(Settings(str(SOFTMAX), build=str(tmp_path), variants=("warp",), upto=None), 16, silent)
    plain, marked = (ctypes.CDLL(str(artifact.plan_library)) for artifact in compile_all(context).artifacts)
    assert not hasattr(plain, "flashcore_phases")
    read = marked.flashcore_phases
    read.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    size, larger = (BLOCKS * WARPS * layout(events).size for events in (16, 17))
    assert read(None, size + 16) == read(None, larger) == -1
    assert read(None, size) != -1  # with a GPU 0, without one CUDA's error
