"""Identical shapes are one row: the fastest variant against the fastest reference, under whatever names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain.predictions import Readings
from flashcore.explain.rows import Row
from flashcore.model.record import Record, SharingGpu
from flashcore.model.suite import Shape, Suite
from tests import factory

MISSION = factory.shape()
TWIN = replace(factory.shape("twin"), problem="general", same_as="mission", rank_by="back_to_back")
ALIKE = factory.shape("alike")


def suite(*shapes: Shape) -> Suite:
    variants = (
        factory.variant("slow"),
        factory.peer("cudnn"),
        factory.variant("best", problem="general"),
        factory.peer("cudnn_general", problem="general"),
    )
    return factory.suite(variants, shapes)


def row(r: Record) -> Row:
    (shapes,) = r.suite.rows(r.suite.shapes.values())
    return Row(Readings(r), shapes)


def times(cudnn: float, cudnn_general: float) -> Record:
    us = {"slow": 40.0, "cudnn": cudnn, "best": 4.0, "cudnn_general": cudnn_general}
    return factory.record(suite(MISSION, TWIN), times=us)


def on_gpus(*shapes: str) -> tuple[SharingGpu, ...]:
    """A GPU for each shape, which timed all its cases."""
    return tuple(
        SharingGpu(f"GPU-{shape}", None, None, {}, None, None, (), {"bench": (f"best/{shape}", f"cudnn/{shape}")})
        for shape in shapes
    )


def test_a_row_compares_the_fastest_variant_and_reference_of_all_names() -> None:
    made = row(times(cudnn=9.0, cudnn_general=10.0))
    assert made.name == "mission = twin"
    assert {name: shape.name for name, shape in made.cases.items()} == {
        "slow": "mission",
        "cudnn": "mission",
        "best": "twin",
        "cudnn_general": "twin",
    }
    assert list(made.times) == ["best", "cudnn", "cudnn_general", "slow"]
    assert made.times["best"] < 4.2  # isolated, as the first name ranks, not back to back
    assert made.reference == "cudnn"


def interval(made: Row, other: str) -> tuple[float, float, float]:
    value, low, high = made.over("best", other) or (0, None, None)
    assert low is not None and high is not None
    return low, value, high


def test_other_rounds_are_not_paired_and_it_says_so() -> None:
    separate, together = row(times(9.0, 10.0)), row(times(10.0, 9.0))
    assert separate.pair("best", "cudnn") == "best/twin against cudnn/mission, not timed in the same rounds"
    assert together.pair("best", "cudnn_general") == "best/twin against cudnn_general/twin"
    for made in (separate, together):
        assert interval(made, made.reference or "")[1] == pytest.approx(9 / 4, rel=0.01)
    # Of series that rise together, only those of the same rounds have a ratio without any spread.
    rising = {
        f"{case}/isolated": tuple(us * (1 + i / 20) for i in range(40))
        for case, us in (("best/twin", 4.0), ("cudnn/mission", 9.0), ("cudnn_general/twin", 10.0))
    }
    made = row(replace(times(9.0, 10.0), samples=rising))
    assert interval(made, "cudnn_general") == pytest.approx((2.5, 2.5, 2.5))
    low, value, high = interval(made, "cudnn")
    assert low < 2.1 < value < 2.4 < high


@pytest.mark.parametrize(("shapes", "ending"), [(("mission", "twin"), " nor on one GPU"), (("twin",), "rounds")])
def test_a_pair_that_two_gpus_timed_says_so(shapes: tuple[str, ...], ending: str) -> None:
    assert row(replace(times(9.0, 10.0), gpus=on_gpus(*shapes))).pair("best", "cudnn").endswith(ending)


def test_of_one_variant_on_two_names_the_faster_case_counts() -> None:
    r = factory.record(suite(MISSION, ALIKE))
    faster = [
        factory.fact("isolated_p50", us, name, shape=shape)
        for name, shape, us in (("slow", "alike", 3.0), ("cudnn", "mission", 2.0))
    ]
    made = row(factory.record(r.suite, faster))
    assert (made.cases["slow"].name, made.cases["cudnn"].name) == ("alike", "mission")
    assert list(made.times) == ["cudnn", "slow"] and "best" not in made.cases


def test_a_row_without_a_time_or_reference_compares_nothing() -> None:
    made = row(factory.bare_record(suite(MISSION)))
    assert (made.times, made.reference, made.over("slow", None), made.over("slow", "cudnn")) == ({}, None, None, None)
    assert made.over("slow", "absent") is None
    assert made.pair("slow", "cudnn") == ""  # one name: nothing to tell apart
