"""Recorded launches: a launcher of foreign CUDA code is called without a GPU, and its launches are its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.measure.build import launch_plan
from flashcore.measure.machine.toolchain import Nvcc
from flashcore.measure.static import facts as static_facts
from flashcore.model.record import Launch, Plan
from flashcore.plugins.recorded import launchers
from tests.conftest import ROOT, TOY, Built, compile_one, no_disassembler


def planned(built: Built) -> list[Plan]:
    return launch_plan.plans(built.suite, built.artifacts, list(built.suite.shapes.values()), launchers)


def test_a_recorded_launcher_sees_what_a_shape_leaves_out(update: Built) -> None:
    shapes = list(update.suite.shapes.values())
    plans = {p.shape: p for p in launch_plan.plans(update.suite, [update.of("plain")], shapes, launchers)}
    assert [x.kernel for x in plans["bare"].launches] == ["update<0>"]
    assert [x.kernel for x in plans["biased"].launches] == ["update<1>"]
    assert [x.grid for x in plans["biased"].launches] == [(8, 256, 1)]
    two = [[("void*", 0), ("void*", 1)], [("void*", 1), ("void*", 0)], [("void*", 1), ("void*", 1)]]
    assert len({tuple(launchers.cache_key(arguments, [9])) for arguments in two}) == 3


LADDER = ROOT / "examples" / "sgemm"


@pytest.mark.skipif(
    not (LADDER / "SGEMM_CUDA").is_dir(), reason="headers: sh examples/sgemm/fetch.sh brings the headers"
)
def test_a_kernel_of_a_public_ladder_is_used_as_it_is(whole_cuda_headers: None, compiler: Nvcc, tmp_path: Path) -> None:
    built = compile_one(LADDER, tmp_path, "warp_tiles")
    assert [(a.status, a.message) for a in built.artifacts] == [("ok", "")]
    plans = {p.shape: p for p in planned(built)}
    (launch,) = plans["square"].launches
    assert launch.kernel == "sgemmWarptiling<128,128,16,64,64,4,8,4,128>"
    assert (launch.grid, launch.block) == ((32, 32, 1), (128, 1, 1))


@pytest.fixture(scope="module")
def foreign(compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Plan]:
    """The plans of launchers that say nothing of their launches. (Compiles four objects: no other way shows it.)"""
    built = compile_one(TOY.with_name("foreign"), tmp_path_factory.mktemp("foreign"))
    assert [a.status for a in built.artifacts] == ["ok"] * 4
    result = planned(built)
    with no_disassembler():
        facts = {f.subject.kernel for a in built.artifacts if a.variant == "recorded" for f in static_facts.facts(a)[0]}
    assert facts == {"lib::scale<128,1>", "lib::none"}  # the cubin's kernels have the names that the plan has
    return {(p.variant, p.shape): p for p in result}


def test_a_launchers_own_launches_are_its_plan(foreign: dict[tuple[str, str], Plan]) -> None:
    first, second, third = foreign["recorded", "small"].launches
    assert first == Launch("lib::scale<128,1>", (32, 1, 1), (128, 1, 1), (1, 1, 1), 16)
    assert second == Launch("lib::none", (3, 1, 1), (64, 1, 1), (2, 1, 1), 0)  # as its source fixes it
    assert third == Launch("lib::none", (132, 1, 1), (32, 2, 1), (2, 1, 1), 0, programmatic=True)
    # A number that the shape does not name is 1: the branch on 0.5 is not taken.
    assert [x.grid[0] for x in foreign["recorded", "tail"].launches] == [8, 132]


def test_what_only_a_device_can_answer_fails_the_plan(foreign: dict[tuple[str, str], Plan]) -> None:
    requested = foreign["asks_occupancy", "small"]
    assert "calls cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, which cannot be answered" in requested.error
    assert not requested.launches and not requested.crashed
    assert foreign["asks_runtime", "small"].error and not foreign["asks_runtime", "small"].launches


def test_a_declared_plan_has_its_kernels_name_from_the_compiler(foreign: dict[tuple[str, str], Plan]) -> None:
    assert foreign["declared", "tail"].launches[0].kernel == "lib::scale<256,1>"
