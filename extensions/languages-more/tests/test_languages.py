"""Each kernel language through its real compiler, without a GPU, as the package's own are tested, and its launches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from flashcore.runner.kernel_call import KernelCall, Launched
from flashcore_judge.launcher.planned import planned
from tests import softmax_cases
from tests.support import traced
from tests.support.traced import (
    Compiled,
    compiled_in,
    test_a_build_of_another_machine_needs_no_compiler,
    test_a_mistake_in_a_kernel_names_its_line,
    test_a_planted_spill_fails_the_gate_and_names_the_line,
    test_an_edit_that_changes_no_machine_code_passes,
    test_an_impossible_launch_fails_the_gate,
    test_the_sound_kernel_passes_with_its_launch,
)

__all__ = [
    "test_a_build_of_another_machine_needs_no_compiler",
    "test_a_mistake_in_a_kernel_names_its_line",
    "test_a_planted_spill_fails_the_gate_and_names_the_line",
    "test_an_edit_that_changes_no_machine_code_passes",
    "test_an_impossible_launch_fails_the_gate",
    "test_the_sound_kernel_passes_with_its_launch",
]
#: Language → the module that it needs, and a kernel whose registers, or the grid of whose launch, are too few or large.
LANGUAGES = {
    **traced.LANGUAGES,
    "numba": ("numba_cuda", """from numba import cuda, float32


def kernel_of(cap):
    @cuda.jit(max_registers=cap)
    def rows_kernel(x, out):
        values = cuda.local.array(64, float32)
        row, thread = cuda.blockIdx.x, cuda.threadIdx.x
        total = float32(0)
        for i in range(64):
            values[i] = x[row, i * 32 + thread]
            total += values[i] * values[i]
        for i in range(64):
            out[row, i * 32 + thread] = values[i] / total

    return rows_kernel


def rows(x, out, CAP, GRID):
    kernel_of(CAP)[(x.shape[0], GRID), 32](x, out)
"""),
    "cute": ("cutlass", """import cutlass
from cutlass import cute


@cute.kernel
def rows_kernel(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    values = cute.make_rmem_tensor(cute.make_layout(64), cutlass.Float32)
    total = cutlass.Float32(0)
    for i in cutlass.range_constexpr(64):
        values[i] = x[row, i * 32 + thread]
        total = total + values[i] * values[i]
    for i in cutlass.range_constexpr(64):
        out[row, i * 32 + thread] = values[i] / total


@cute.jit
def rows(x: cute.Tensor, out: cute.Tensor, CAP: cutlass.Constexpr, GRID: cutlass.Constexpr):
    threads = cutlass.const_expr(1024 if CAP < 64 else 32)
    rows_kernel(x, out).launch(grid=[x.shape[0], GRID, 1], block=[threads, 1, 1])
"""),
    "cutile": ("cuda.tile", """import cuda.tile as ct


def kernel_of(cap):
    @ct.kernel(occupancy=32 if cap < 64 else None)
    def rows_kernel(x, out):
        values = ct.load(x, index=(ct.bid(0), 0), shape=(1, 2048))
        ct.store(out, index=(ct.bid(0), 0), tile=values / ct.sum(values * values, axis=1, keepdims=True))

    return rows_kernel


def rows(x, out, CAP, GRID):
    ct.launch(None, (x.shape[0], GRID), kernel_of(CAP), (x, out))
"""),
}  # fmt: skip


@pytest.fixture(scope="module", params=LANGUAGES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled_in(request.param, *LANGUAGES[request.param], tmp_path_factory.mktemp(request.param))


def test_the_launcher_can_launch_its_plan(compiled: Compiled, tmp_path: Path) -> None:
    """Every parameter of the kernel is given, and each tensor once."""
    artifact, suite = compiled.artifacts["sound"], compiled.suite
    (plan,) = compiled.language.plans(artifact, suite.shapes.values())
    case: KernelCall = dataclasses.replace(
        softmax_cases.case("right"),
        params={"R": 64, "C": 2048},
        arguments=suite.problems["rows"].arguments,
        target=Launched(
            "a.launcher:target",
            artifact.cubins,
            dataclasses.asdict(plan),
            tuple(compiled.language.calls(artifact, "rows")),
        ),
    )
    (launch,) = planned(case, tmp_path).launches
    tensors = [value.tensor for argument in launch.arguments for value in argument if value.tensor]
    assert tensors == ["x", "out"]
