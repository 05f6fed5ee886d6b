"""Measured roofs: ceilings out of a run, a kernel's own clock, when they are measured, and what the suite must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.explain import measured_roofs
from flashcore.model.record import Record, Value
from flashcore.model.suite import Suite
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench import child
from flashcore.suites.load import load
from tests import factory
from tests.conftest import ROOT

SUITE = ROOT / "kernels/roofs"
BYTES = {"big": ("dram_bytes", "GB/s")}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load(str(SUITE))


def record(cases: Mapping[str, Mapping[str, Value]], roof: str = "dram", references: Sequence[str] = ()) -> Record:
    """A run of variants on the shape ``big``, each timed, with these facts."""
    make = {name: factory.reference if name in references else factory.variant for name in cases}
    return factory.bare_record(
        factory.suite([make[name](name, roof=roof) for name in cases], [factory.shape("big")]),
        [f for name, values in cases.items() for f in factory.facts_of(values, name, shape="big")],
        outcomes=tuple(factory.outcome(name, "big", "bench") for name in cases),
    )


def timed(us: float, **more: Value) -> dict[str, Value]:
    return {"formula_dram_bytes": 2e9, "back_to_back_p50": us, "back_to_back_std": 0.01 * us, **more}


# --- ceilings -----------------------------------------------------------------------------------


def test_dram_is_timed_until_all_is_written() -> None:
    (result,) = measured_roofs.measured(
        record({"copy": timed(500.0, kernel_span=400.0, kernel_sm_clock=1970.0)}), BYTES
    )
    assert result.value == pytest.approx(4000.0)
    assert (result.unit, result.clock_mhz) == ("GB/s", 1970.0)
    assert result.spread == pytest.approx(0.01)
    assert result.datasheet == 4800.0  # at any clock of the SMs
    assert result.ratio == pytest.approx(4000 / 4800)
    assert result.per_clock is None, "no SM's work is in it"


def test_work_of_the_sms_is_timed_by_the_kernel_itself() -> None:
    facts: dict[str, Value] = {"formula_fp32_flop": 6e9, "back_to_back_p50": 110.0, "kernel_span": 100.0}
    run = record({"fma": {**facts, "kernel_sm_clock": 2000.0}}, roof="fp32")
    (result,) = measured_roofs.measured(run, {"big": ("fp32_flop", "TFLOP/s")})
    assert result.value == pytest.approx(60.0)
    assert result.per_clock == pytest.approx(6e9 / (100 * 2000) / 132)
    unclocked = measured_roofs.measured(record({"fma": facts}, roof="fp32"), {"big": ("fp32_flop", "TFLOP/s")})
    nameless = measured_roofs.measured(
        replace(run, environment=factory.environment(gpu_sms=None)), {"big": ("fp32_flop", "TFLOP/s")}
    )
    assert [m.value for m in (*unclocked, *nameless)] == [pytest.approx(60.0)] * 2
    assert {m.per_clock for m in (*unclocked, *nameless)} == {None}


def test_the_best_of_a_family_is_the_roof_and_a_library_is_none() -> None:
    run = record({"plain": timed(600.0), "bulk": timed(500.0), "library": timed(400.0)}, references=["library"])
    result = measured_roofs.measured(run, BYTES)
    assert {m.subject.variant: m.library for m in result} == {"plain": False, "bulk": False, "library": True}
    ceilings = measured_roofs.ceilings(run, result)
    assert [r.resource for r in ceilings] == ["dram", "attention"]  # under the resource's name and the problem's
    assert [r.value for r in ceilings] == [pytest.approx(4000.0)] * 2
    assert all("bulk/big" in r.note and r.origin == "measured" and r.device == factory.GPU for r in ceilings)


def test_the_least_is_the_best_of_what_costs_time() -> None:
    run = record(
        {
            name: {"formula_barriers": 100, "kernel_block_span": us, "kernel_sm_clock": 1970.0}
            for name, us in {"slow": 30.0, "fast": 20.0}.items()
        },
        roof="barrier",
    )
    result = measured_roofs.measured(run, {"big": ("barriers", "us")})
    assert [m.name for m in result] == ["slow", "fast"]  # each is a ceiling of its own
    assert {m.per_clock for m in result} == {None}, "a time is no rate"
    assert {r.resource: r.value for r in measured_roofs.ceilings(run, result)} == {
        "barrier": 0.2,
        "slow": 0.3,
        "fast": 0.2,
    }


def test_a_launch_is_measured_in_a_graph_and_plainly() -> None:
    run = record({"launch": {"formula_launches": 32, "back_to_back_p50": 32.0, "eager_p50": 96.0}}, roof="launch")
    result = measured_roofs.measured(run, {"big": ("launches", "us")})
    assert [(m.name, m.resource, m.value) for m in result] == [
        ("launch", "launch", 1.0),
        ("launch_plain", "launch_plain", 3.0),
    ]


@pytest.mark.parametrize("missing", ["formula_dram_bytes", "back_to_back_p50"])
def test_what_was_not_measured_is_no_ceiling(missing: str) -> None:
    facts = {n: v for n, v in timed(500.0).items() if n != missing}
    assert measured_roofs.measured(record({"copy": facts}), BYTES) == []


def test_a_case_that_failed_is_no_ceiling() -> None:
    run = record({"copy": timed(500.0)})
    failed = factory.bare_record(
        run.suite, run.facts, outcomes=(factory.outcome("copy", "big", "bench", "failed", "hang"),)
    )
    assert measured_roofs.measured(failed, BYTES) == []


# --- the clock inside the kernel ------------------------------------------------------------------


def clock(rows: Sequence[Sequence[int]], arguments: Sequence[str] = ("x", "clocked", "clocks")) -> dict[str, float]:
    """The values that bench reads from a kernel that records these rows."""
    torch = pytest.importorskip("torch")

    class Caller:
        device = "cpu"
        case = SimpleNamespace(arguments=[SimpleNamespace(name=n) for n in arguments])

        def outputs(self, fill: int) -> dict[str, Any]:
            return {"clocks": torch.full((len(rows), 4), fill, dtype=torch.int64)}

        def call(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
            assert inputs["clocked"] == 1
            outputs["clocks"].copy_(torch.tensor(rows, dtype=torch.int64))

    warm = SimpleNamespace(back_to_back=lambda: 1.0)
    return child._kernel_clock(Caller(), {"clocked": 0}, warm)  # type: ignore[arg-type]


NOW = 1_790_000_000_123_456_789  # ns since 1970: more than a double holds


def test_the_clock_of_blocks_that_come_and_go() -> None:
    rows = [[7 * i, 7 * i + 7880, NOW + 4032 * i, NOW + 4032 * i + 4000] for i in range(100)]
    result = clock(rows)
    assert result["kernel_sm_clock"] == pytest.approx(1970.0, rel=1e-12)
    assert result["kernel_span"] == pytest.approx((99 * 4032 + 4000) / 1e3, rel=1e-12)
    assert result["kernel_block_span"] == pytest.approx(4.0, rel=1e-12)


def test_a_kernel_too_short_for_the_chips_nanoseconds_tells_no_clock() -> None:
    assert clock([[0, 9850, NOW, NOW + 5000]] * 10) == {}


def test_an_operator_without_clocks_is_not_asked() -> None:
    assert clock([[0, 99_000, NOW, NOW + 50_000]], arguments=("x", "out")) == {}


# --- the suite ------------------------------------------------------------------------------------


def test_every_ceiling_has_a_kernel(suite: Suite) -> None:
    resources = {v.roof for v in suite.variants.values() if not v.is_reference}
    tensor = {"fp16_tensor", "bf16_tensor", "fp8_tensor"}
    rest = {"dram", "l2", "l1", "shared", "fp32", "exp", "issue", "barrier", "cluster_barrier", "launch"}
    assert resources == tensor | rest
    problems = {v.problem for v in suite.variants.values()}
    assert {f"dram_{kind}" for kind in ("read", "write", "copy", "triad")} <= problems


def test_every_kernel_is_proved_by_its_instructions(suite: Suite) -> None:
    proofs = [b for b in suite.budgets if b.fact.startswith("sass_")]
    unproved = [
        v.name
        for v in suite.variants.values()
        if not v.is_reference and not any(fnmatchcase(v.name, glob) for b in proofs for glob in b.variants)
    ]
    assert unproved == []


@pytest.mark.parametrize("sms", [1, 20, 58, 108, 114, 132, 148, 188])
def test_streaming_shapes_are_whole_tiles_on_any_machine(suite: Suite, sms: int) -> None:
    for shape in suite.shapes.values():
        if not shape.problem.startswith("dram_") or shape.params["SMS"] == 1:
            continue
        problem = load_problem(SUITE, suite.problems[shape.problem].file)
        params = problem.fit(dict(shape.params), sms, 50 << 20)
        assert params["WORDS"] % 8192 == 0
        if shape.problem in ("dram_copy", "dram_triad"):
            assert params["WORDS"] == 8192 * params["BLOCKS"]  # a block, or a row of clocks, for each tile
        assert params["WORDS"] * 132 == int(shape.params["WORDS"]) * sms  # the same for each SM
