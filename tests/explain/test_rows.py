"""Identical shapes are one row: the fastest variant against the fastest reference, under whatever names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import OTHER_GPUS, OTHER_ROUNDS, OTHER_RUNS
from flashcore.model.record import Facts, Record, SharingGpu
from flashcore.model.suite import Shape, Suite
from tests import factory

MISSION = factory.shape()
TWIN = replace(factory.shape("twin"), problem="general", same_as="mission", rank_by="back_to_back")
ALIKE = factory.shape("alike")


def suite(*shapes: Shape) -> Suite:
    variants = (
        factory.variant("slow"),
        factory.reference("cudnn"),
        factory.variant("best", problem="general"),
        factory.reference("cudnn_general", problem="general"),
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
        SharingGpu(f"GPU-{shape}", None, None, None, (), {"bench": (Case("best", shape), Case("cudnn", shape))})
        for shape in shapes
    )


def test_a_row_compares_the_fastest_variant_and_reference_of_all_names() -> None:
    made = row(times(cudnn=9.0, cudnn_general=10.0))
    assert made.name == "mission = twin"
    assert {name: case.shape for name, case in made.cases.items()} == {
        "slow": "mission",
        "cudnn": "mission",
        "best": "twin",
        "cudnn_general": "twin",
    }
    assert list(made.times) == ["best", "cudnn", "cudnn_general", "slow"]
    assert made.times["best"] < 4.2  # isolated, as the first name ranks, not back to back
    assert made.reference == "cudnn"


def test_only_times_of_the_same_rounds_have_an_interval() -> None:
    separate, together = row(times(9.0, 10.0)), row(times(10.0, 9.0))
    assert separate.pair("best", "cudnn") == (Case("best", "twin"), Case("cudnn", "mission"))
    assert together.pair("best", "cudnn_general") == (Case("best", "twin"), Case("cudnn_general", "twin"))
    for made in (separate, together):
        over = made.over("best", made.reference)
        assert over and over.value == pytest.approx(9 / 4, rel=0.01)
    # Series that rise together have a ratio without any spread.
    rising = {
        (Case(*case), "isolated"): tuple(us * (1 + i / 20) for i in range(40))
        for case, us in ((("best", "twin"), 4.0), (("cudnn", "mission"), 9.0), (("cudnn_general", "twin"), 10.0))
    }
    made = row(replace(times(9.0, 10.0), raw_samples=rising))
    assert made.over("best", "cudnn_general") == pytest.approx((2.5, 2.5, 2.5, None))
    over = made.over("best", "cudnn")
    assert over and over.ends is None and over.cause == OTHER_ROUNDS()


@pytest.mark.parametrize(("shapes", "cause"), [(("mission", "twin"), OTHER_GPUS()), (("twin",), OTHER_ROUNDS())])
def test_a_pair_that_two_gpus_timed_says_so(shapes: tuple[str, ...], cause: Cause) -> None:
    over = row(replace(times(9.0, 10.0), gpus=on_gpus(*shapes))).over("best", "cudnn")
    assert over and over.cause == cause


def test_a_case_that_was_joined_from_another_run_has_no_interval() -> None:
    r = times(10.0, 9.0)
    joined = [replace(o, origin="another") if o.case == Case("cudnn_general", "twin") else o for o in r.outcomes]
    over = row(replace(r, outcomes=tuple(joined))).over("best", "cudnn_general")
    assert over and over.cause == OTHER_RUNS()


def test_times_of_one_shape_with_other_empty_launches_are_of_other_rounds() -> None:
    r = times(10.0, 9.0)
    floors = [
        factory.fact("isolated_launch_floor", us, name, shape="twin")
        for name, us in (("best", 0.8), ("cudnn_general", 0.9))
    ]
    over = row(replace(r, facts=Facts([*r.facts, *floors]))).over("best", "cudnn_general")
    assert over and over.cause == OTHER_ROUNDS()


@pytest.mark.parametrize(("general", "reference"), [(9.3, "cudnn_general"), (9.6, "cudnn")])
def test_the_row_prefers_a_reference_as_fast_that_was_timed_with_the_winner(general: float, reference: str) -> None:
    made = row(times(9.0, general))
    assert next(iter(made.references)) == "cudnn" and made.reference == reference


def test_references_are_compared_with_the_fastest_of_them() -> None:
    """Also the fastest itself, not with another that is as fast."""
    references = factory.reference("cudnn"), factory.reference("flash")
    made = factory.suite((factory.variant("slow"), *references), (MISSION,))
    r = factory.record(made, times={"slow": 40.0, "cudnn": 9.0, "flash": 9.2})
    one = Row(Readings(r), (MISSION,))
    assert {name: one.reference_of(name) for name in ("cudnn", "flash")} == {"cudnn": "cudnn", "flash": "cudnn"}


def test_of_one_variant_on_two_names_the_faster_case_counts() -> None:
    r = factory.record(suite(MISSION, ALIKE))
    faster = [
        factory.fact("isolated_p50", us, name, shape=shape)
        for name, shape, us in (("slow", "alike", 3.0), ("cudnn", "mission", 2.0))
    ]
    made = row(factory.record(r.suite, faster))
    assert (made.cases["slow"].shape, made.cases["cudnn"].shape) == ("alike", "mission")
    assert list(made.times) == ["cudnn", "slow"] and "best" not in made.cases


def test_a_row_without_a_time_or_reference_compares_nothing() -> None:
    made = row(factory.bare_record(suite(MISSION)))
    assert (made.times, made.reference, made.over("slow", None), made.over("slow", "cudnn")) == ({}, None, None, None)
    assert made.over("slow", "absent") is None
    assert made.pair("slow", "cudnn") == (Case("slow", "mission"), Case("cudnn", "mission"))
