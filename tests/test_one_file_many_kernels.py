"""A file with several kernels, of which each variant launches some: facts, budgets and baselines cover those."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.machine import toolchain
from tests.conftest import TOY

KERNELS = """\
#include <flashcore/problem.h>
#include <flashcore/launcher.h>
template <int kEach>
__global__ void copied(const float* x, float* out, long long n) {
  for (int i = 0; i < kEach; ++i) {
    long long at = (blockIdx.x * 256LL + threadIdx.x) * kEach + i;
    if (at < n) out[at] = EXPRESSION;
  }
}
__global__ void spilling(const float* x, float* out, long long n) {
  float all[64];
  for (int i = 0; i < 64; ++i) all[i] = x[(threadIdx.x * 7 + i) % n];
  for (long long i = 0; i < n; ++i) out[i] = all[static_cast<int>(x[i]) & 63];
}
template __global__ void copied<4>(const float*, float*, long long);
template __global__ void copied<1>(const float*, float*, long long);
static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, void*, cudaStream_t stream) {
  copied<EACH><<<(s.N + 256 * EACH - 1) / (256 * EACH), 256, 0, stream>>>((const float*)a.x, (float*)a.out, s.N);
  return cudaGetLastError();
}
FLASHCORE_LAUNCHER(launch)
"""
PROBLEM = """\
KINDS = ("normal",)
TOLERANCES = {"fp32": "a copy"}
FENCE = {"max": 1e-3, "mean": 1e-4}

def make_inputs(params, seed, device, kind="normal"):
    import torch
    return {"x": torch.randn(params["N"]).to(device)}

def reference(inputs, params):
    return {"out": inputs["x"].double()}

def emulate(tolerance, inputs, params):
    return {"out": inputs["x"]}

def work(params):
    return {"flop": params["N"], "bytes": 8 * params["N"]}
"""
MANIFEST = """\
name = "copies"
title = "Copies"
nvcc = "13.0"
archs = ["sm_90a"]
baseline = "one"
[problem.copies]
file = "problem.py"
schema = "(Tensor x, Tensor(a!) out) -> ()"
dims = { x = ["N"], out = ["N"] }
dtypes = { "*" = "float32" }
[shape.small]
params = { N = 4096 }
[shape.large]
params = { N = 1048576 }
[variant.one]
source = "copies.cu"
plan = "recorded"
technique = "one element a thread"
config = { EACH = "1" }
roof = "fp32"
tolerance = "fp32"
tolerance_reason = "copies"
[variant.four]
source = "copies.cu"
plan = "recorded"
technique = "four elements a thread"
config = { EACH = "4" }
roof = "fp32"
tolerance = "fp32"
tolerance_reason = "copies"
[[budget]]
name = "stack"
fact = "stack_bytes"
max = 0
source = "the owner"
"""


Run = Callable[..., int]


@pytest.fixture
def run(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the suite of a folder. No operator is built, which takes half the time."""
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)
    return lambda folder, *words: main([*words, "--suite", str(folder), "--build-dir", str(kept_folder)])


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the suite ``copies``."""
    folder = tmp_path_factory.mktemp("copies")
    (folder / "copies.cu").write_text(KERNELS.replace("EXPRESSION", "x[at]"))
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "suite.toml").write_text(MANIFEST)
    return folder


def test_only_launched_kernels_are_rows_facts_and_verdicts(
    run: Run, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(copies, "build") == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[:3] for line in lines if line.split()[1:2] == ["sm_90a"]]
    assert rows == [["one", "sm_90a", "copied<1>"], ["four", "sm_90a", "copied<4>"]]
    assert [line for line in lines if "left out: one/copied<4> and 3 more" in line]
    file = copies / "gate.json"
    assert run(copies, "gate", "--format", f"json={file}") == Exit.OK  # though a kernel of the file uses a stack
    result = json.loads(file.read_text())
    assert {v["subject"]["kernel"] for v in result["verdicts"] if v["budget"] == "stack"} == {"copied<1>", "copied<4>"}
    assert any("one/copied<4> and 3 more" in note for note in result["notes"])
    assert not any("identical" in note for note in result["notes"])  # they launch other kernels of one file


@pytest.mark.parametrize(("kernel", "code"), [("spilling", Exit.FAILED), ("copied<4>", Exit.OK)])
def test_a_budget_of_a_kernel_that_nothing_launches_fails(
    run: Run, copies: Path, capsys: pytest.CaptureFixture[str], kernel: str, code: Exit
) -> None:
    more = copies / "more.toml"
    more.write_text(
        f'[[budget]]\nname = "own"\nfact = "registers"\nmax = 255\nsource = "x"\nkernels = ["{kernel}", "copied*"]\n'
    )
    assert run(copies, "gate", "--budgets", str(more)) == code
    assert ("not launched on any shape: spilling" in capsys.readouterr().out) == (code is Exit.FAILED)


def test_a_missing_plan_lets_all_kernels_count(run: Run, copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = copies / "copies.cu"
    text = source.read_text()
    source.write_text(text.replace("  copied<EACH>", "  if (s.N > 5000) return cudaErrorInvalidValue;\n  copied<EACH>"))
    try:
        run(copies, "build")
        rows = [row.split()[:3] for row in capsys.readouterr().out.splitlines()]
    finally:
        source.write_text(text)
    assert ["one", "sm_90a", "spilling"] in rows and ["four", "sm_90a", "copied<1>"] in rows


def test_the_gate_tells_what_the_baseline_knows(run: Run, copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file = copies / "copies.cu", copies / "baseline.txt"
    text = source.read_text()
    try:
        assert run(copies, "baseline", "save") == Exit.OK
        lines = file.read_text().splitlines()
        assert "one sm_90a copied<1> small launch grid=16 block=256" in lines
        assert not any("spilling" in line for line in lines)
        source.write_text(text.replace("(s.N + 256 * EACH - 1)", "(s.N / 2 + 256 * EACH - 1)"))
        assert run(copies, "gate") == Exit.OK
        halved = capsys.readouterr().out
        assert "launch grid=16 block=256 → grid=8 block=256 (small)" in halved
        assert "machine code the same in 2 of 2" in halved
        source.write_text(text.replace("= x[at]", "= x[at] * 1.1"))
        run(copies, "gate")
        doubled = capsys.readouterr().out
        assert "sass_fp64 0 → 1  one/copied<1> (sm_90a)" in doubled and "sass_fp64 0 → 4  four/copied<4>" in doubled
        assert "machine code the same in 0 of 2" in doubled
    finally:
        source.write_text(text)
        file.unlink(missing_ok=True)


def test_equal_files_are_the_same_whatever_they_are_called(
    run: Run, kept_folder: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(copies, "build")
    cubin = next(kept_folder.rglob("one-sm_90a-*/*.cubin")).read_bytes()
    for name in ("old.cubin", "new.cubin"):
        (tmp_path / name).write_bytes(cubin)
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "old.cubin"), str(tmp_path / "new.cubin")]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[0].endswith("machine code the same in 3 of 3")


@pytest.mark.parametrize(
    ("call", "counted"),
    [
        ("", False),  # a kernel that nothing launches
        ("if (s.N < 0) return flashcore::run(p.launches[0], heavy, stream, nullptr);\n  ", False),  # on no shape
        (
            "cudaLaunchConfig_t once = {};\n  once.gridDim = once.blockDim = 1;\n  once.stream = stream;\n"
            "  cudaLaunchKernelEx(&once, heavy, (float*)nullptr);\n  ",
            True,
        ),
        (
            "\n#define LAUNCH(how) cudaLaunchKernel##how\n  cudaLaunchConfig_t once = {};\n"
            "  once.gridDim = once.blockDim = 1;\n  LAUNCH(Ex)(&once, heavy, (float*)nullptr);\n  ",
            True,
        ),
        ("/* not by cudaLaunchKernelEx */ ", False),
        ("heavy<<<1, 256, 0, stream>>>(nullptr);\n  ", True),
        ("void* args[1];\n  cudaLaunchKernel((const void*)heavy, 1, 256, args, 0, stream);\n  ", True),
        ("void* args[1];\n  cudaLaunchCooperativeKernel((void*)heavy, 1, 256, args, 0, stream);\n  ", True),
    ],
)
def test_a_launch_beside_the_declared_plan_lets_all_kernels_count(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    counted: bool,
) -> None:
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    monkeypatch.delenv("NVCC_PREPEND_FLAGS", raising=False)  # the toolkit's headers: others' launches count
    shutil.copytree(TOY, tmp_path / "toy")
    source = tmp_path / "toy" / "scale.cu"
    text = source.read_text()
    heavy = "namespace { __global__ void heavy(float* out) { out[threadIdx.x] = 1; } }\n"
    text = text.replace('extern "C" __global__', f'{heavy}extern "C" __global__')
    source.write_text(text.replace("return flashcore::run(", f"{call}return flashcore::run("))
    assert run(tmp_path / "toy", "build", "--variant", "plain") == Exit.OK
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert (["plain", "sm_90a", "heavy"] in rows) == counted
