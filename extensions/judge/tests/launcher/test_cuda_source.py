"""A CUDA variant's launches with their arguments, from its host code alone."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import FlashcoreError
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore_judge.launcher import cuda_source, program
from flashcore_judge.launcher.cuda_source import _argument
from flashcore_judge.launcher.plan import Plan
from tests.conftest import TOY, Built, compile_one


def case(built: Built, variant: str, shape: str) -> KernelCall:
    problem = built.suite.problems[built.suite.variants[variant].problem]
    return KernelCall(
        variant=variant,
        shape=shape,
        suite=built.suite.name,
        root=built.suite.root,
        problem_file=problem.file,
        params=dict(built.suite.shapes[shape].params),
        arguments=problem.arguments,
        target=Operator(built.of(variant).library),
        tolerance="",
        seeds=(0,),
        flop=None,
    )


def planned(built: Built, variant: str, shape: str, inputs: dict[str, float], folder: Path) -> Plan:
    return cuda_source.planned(case(built, variant, shape), inputs, built.of(variant), folder)


def arguments(plan: Plan, launch: int = 0) -> list[Any]:
    """Each argument of a launch: the tensor's name, or the bytes."""
    return [values[0].tensor or values[0].hex for values in plan.launches[launch].arguments]


def test_tensors_workspaces_and_numbers_are_told_apart(toy: Built, tmp_path: Path) -> None:
    plan = planned(toy, "two_steps", "small", {"factor": 0.5}, tmp_path)
    count = (4096).to_bytes(8, "little").hex()
    assert [x.kernel for x in plan.launches] == ["copy_kernel", "multiply_kernel"]
    assert arguments(plan) == ["x", "workspace", count]
    assert arguments(plan, 1) == ["workspace", "out", "0000003f", count]
    assert {name: (t.role, [*t.sizes]) for name, t in plan.tensors.items()} == {
        "x": ("input", [4096]),
        "out": ("output", [4096]),
        "workspace": ("workspace", [16384]),
    }
    (tmp_path / "words").write_text(plan.words())
    command = [str(program.built("launcher")), str(tmp_path / "words")]
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["event"] == "checked"


def test_an_absent_tensor_is_an_address_of_zero(update: Built, tmp_path: Path) -> None:
    inputs = {"alpha": 1.0, "beta": 2.0}
    bare = planned(update, "plain", "bare", inputs, tmp_path)
    biased = planned(update, "plain", "biased", inputs, tmp_path)
    assert arguments(bare)[:5] == ["a", (32).to_bytes(8, "little").hex(), "b", "c", "00" * 8]
    assert arguments(biased)[4] == "bias" and biased.tensors["c"].role == "inout" and "bias" not in bare.tensors
    assert bare.launches[0].kernel != biased.launches[0].kernel
    assert arguments(bare)[-2:] == ["0000803f", "00000040"]


MAPPED = """
#include <flashcore/problem.h>
#include <flashcore/launcher.h>
struct Large { char bytes[BYTES]; };
__global__ void mapped(Large large, float* out) { out[threadIdx.x] = large.bytes[threadIdx.x]; }
static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, void*, cudaStream_t stream) {
  mapped<<<1, 32, 0, stream>>>(Large{}, (float*)a.out);
  return s.N == 1001 ? cudaErrorInvalidValue : cudaGetLastError();
}
FLASHCORE_LAUNCHER(launch)
"""


def test_what_may_hold_a_tensor_map_is_refused(compiled_large: Built, tmp_path: Path) -> None:
    with pytest.raises(FlashcoreError, match="found 128: it may be a tensor map"):
        planned(compiled_large, "large_128", "small", {"factor": 1.0}, tmp_path)
    with pytest.raises(FlashcoreError, match="found: invalid argument"):
        planned(compiled_large, "large_120", "tail", {"factor": 1.0}, tmp_path)
    plan = planned(compiled_large, "large_120", "small", {"factor": 1.0}, tmp_path)
    assert arguments(plan) == ["00" * 120, "out"]


@pytest.fixture(scope="module")
def compiled_large(compiler: object, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("large")
    (folder / "problem.py").write_text((TOY / "problem.py").read_text())
    (folder / "mapped.cu").write_text(MAPPED)
    lines = (TOY / "suite.toml").read_text().partition("[variant.plain]")[0]
    lines = lines.replace('baseline = "plain"', 'baseline = "large_120"').replace('include = ["include"]\n', "")
    for size in (120, 128):
        lines += (
            f'[variant.large_{size}]\nsource = "mapped.cu"\nplan = "recorded"\nconfig = {{ BYTES = {size} }}\n'
            'technique = "large"\nroof = "fp32"\ntolerance = "rounded_once"\ntolerance_reason = "none"\n'
        )
    (folder / "suite.toml").write_text(lines)
    return compile_one(folder, folder / "build")


def test_two_small_numbers_in_a_struct_are_no_address() -> None:
    places = {"q": range(1 << 40, (1 << 40) + 4097)}
    content = struct.pack("<iiQ", 257, 257, (1 << 40) + 16)  # the former is 1 << 40 and more, as a word
    assert [(value.at, value.tensor, value.offset) for value in _argument(content, places)] == [
        (0, None, 0),
        (8, "q", 16),
    ]
