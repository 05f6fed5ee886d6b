"""Two clocks, bench's and ncu's, must agree: what they disagree about is no time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain import clocks
from flashcore.model.causes import OverReference
from flashcore.model.record import Facts, Record, Source, Subject
from tests import factory
from tests.conftest import published

FAST = Subject("fast", shape="mission")


def record(cold: float, ncu_us: float, *, kernels: int = 1, ncu_mhz: float = 1980.0) -> Record:
    """The usual record with the two clocks of one case, and the speed-ups of others over it."""
    given = factory.facts_of(
        {"cold_p50": cold, "isolated_p50": cold, "ncu_duration": ncu_us * 1e3, "kernel_launches": kernels,
         "sm_clock": ncu_mhz * 1e6, "bench_sm_clock": 1980.0, "tflops": 9.0}, "fast", shape="mission",
    )  # fmt: skip
    ratios = [
        replace(
            factory.fact(name, 2.0, "slow", shape="mission", detail=OverReference(over, "isolated", 30)),
            source=Source.EVENTS,
        )
        for name, over in (("speedup_vs_baseline", "fast"), ("speedup_vs_peer", "cudnn"))
    ]
    return factory.bare_record(None, [*given, *ratios])


def times(made: Record) -> list[float | None]:
    return [made.facts.number(name, FAST) for name in ("isolated_p50", "cold_p50", "tflops")]


@pytest.mark.parametrize(
    ("cold", "ncu", "kernels", "mhz"),
    [
        (10.0, 10.0, 1, 1980.0),
        (11.2, 8.9, 1, 1800.0),  # cuDNN, as recorded
        (68.3, 88.1, 14, 1950.0),  # fourteen kernels, each with its caches flushed
        (10.0, 16.0, 1, 1200.0),  # ncu at a locked clock
    ],
)  # fmt: skip
def test_clocks_that_agree_change_nothing(cold: float, ncu: float, kernels: int, mhz: float) -> None:
    given = record(cold, ncu, kernels=kernels, ncu_mhz=mhz)
    assert clocks.agreed(given) is given


@pytest.mark.parametrize(("cold", "ncu"), [(2.0, 10.0), (20.0, 10.0), (5.9, 10.0), (14.6, 10.0)])
def test_clocks_that_disagree_leave_every_time_of_the_case_unmeasured(cold: float, ncu: float) -> None:
    made = clocks.agreed(record(cold, ncu))
    assert times(made) == [None, None, None]
    fact = made.facts.get("isolated_p50", FAST)
    assert fact is not None and "two clocks disagree" in fact.note and f"{ncu:g}" in fact.note
    assert made.facts.number("ncu_duration", FAST) == ncu * 1e3, "ncu's own stays"
    slow = Subject("slow", shape="mission")
    assert made.facts.number("speedup_vs_baseline", slow) is None, "a ratio over it is none either"
    assert made.facts.number("speedup_vs_peer", slow) == 2.0


def test_a_time_below_its_floor_is_left_for_the_gate_to_fail() -> None:
    assert times(clocks.agreed(bounded(record(0.01, 10.0))))[0] == 0.01
    assert times(clocks.agreed(bounded(record(20.0, 10.0)))) == [None, None, None], "nor is one that lies above it"


def bounded(given: Record) -> Record:
    """With the formulas that give the case a floor."""
    return replace(given, facts=Facts([*given.facts, *factory.formula_facts("fast", given.suite.shapes["mission"])]))


@pytest.mark.parametrize("unknown", ["sm_clock", "bench_sm_clock"])
def test_a_clock_that_is_unknown_scales_nothing(unknown: str) -> None:
    locked = record(10.0, 16.0, ncu_mhz=1200.0)
    assert times(clocks.agreed(factory.without(locked, unknown))) == [None, None, None]
    same = factory.without(record(10.0, 10.0, ncu_mhz=1200.0), unknown)
    assert clocks.agreed(same) is same


def test_the_published_run_agrees_with_itself() -> None:
    assert len(published().facts.named("ncu_duration")) > 50
    assert clocks.agreed(published()) is published()
