"""The whole time of a case: its parts add up, nothing is rescaled, and the rest is unattributed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain.readings import Readings
from flashcore.explain.time_shares import Whole, whole
from flashcore.model.record import Roof
from tests import factory
from tests.conftest import published
from tests.support.advised import COUNTED, Values, record, stall


def parts(values: Values, *, gpu: bool = True) -> tuple[dict[str, float], Whole]:
    time = whole(Readings(record(values, gpu=gpu)), "fast", "mission")
    return {p.kind: p.percent for p in time.parts}, time


def test_waits_are_shares_of_the_time_in_which_sms_have_warps() -> None:
    shares, _ = parts(stall("barrier", 50.0))
    assert shares == pytest.approx(
        {"issue": 18.0, "stall_barrier": 36.0, "empty_sms": 10.0, "unattributed": 36.0}, rel=0.01
    )


def test_sms_without_warps_are_left_out_where_the_busy_resource_takes_that_time_too() -> None:
    shares, time = parts({**COUNTED, "dram_throughput": 95.0})
    assert shares == pytest.approx({"dram": 95.0, "unattributed": 5.0})
    assert time.most["empty_sms"] == pytest.approx(5.0)


def test_without_the_count_of_issued_instructions_waits_are_upper_bounds() -> None:
    _, time = parts({**stall("barrier", 50.0), "instructions_issued": None})
    bound = next(p for p in time.parts if p.kind == "stall_barrier")
    assert bound.percent == pytest.approx(40.0) and "at most" in bound.source


def test_waits_that_overlap_a_busy_resource_are_left_out_but_bound_by_the_rest() -> None:
    shares, time = parts({**stall("long_scoreboard", 50.0), "dram_throughput": 80.0})
    assert shares == pytest.approx({"dram": 80.0, "empty_sms": 10.0, "unattributed": 10.0}, rel=0.01)
    assert "overlap" in time.parts[-1].source and time.most["stall_long_scoreboard"] == pytest.approx(20.0)


def test_waits_that_fit_stand_beside_the_busy_resource() -> None:
    shares, _ = parts({**stall("barrier", 10.0), "dram_throughput": 80.0})
    assert shares["stall_barrier"] == pytest.approx(7.2, rel=0.01) and "issue" not in shares


def test_idle_sms_are_known_without_a_gpu() -> None:
    shares, time = parts({"blocks": 33}, gpu=False)
    assert shares == pytest.approx({"idle_sms": 75.0, "unattributed": 25.0})
    assert time.parts[-1].source == "nothing was timed"


def test_sms_without_a_block_are_idle_in_the_time_beside_the_launch() -> None:
    roofs = (Roof("launch", 3.0, "us", "measured", factory.GPU),)
    case = replace(record({"isolated_p50": 10.0, "kernel_launches": 1, "blocks": 66}), roofs=roofs)
    time = whole(Readings(case), "fast", "mission")
    assert {p.kind: p.percent for p in time.parts} == pytest.approx(
        {"launch": 30.0, "idle_sms": 35.0, "unattributed": 35.0}
    )


def test_without_counters_the_formulas_resource_is_named() -> None:
    shares, time = parts({"isolated_p50": 10.0, "formula_flop": 6e9, "formula_bytes": 1e6})
    assert shares["fp16_tensor"] == pytest.approx(100 * 6e9 / 989.4e6 / 10, rel=0.01)
    assert time.timed and time.text.endswith("is unattributed")


def test_the_parts_of_every_published_case_add_up() -> None:
    readings = Readings(published())
    for shape in published().suite.shapes.values():
        for variant in published().suite.variants.values():
            if variant.runs_on(shape):
                time = whole(readings, variant.name, shape.name)
                assert sum(p.percent for p in time.parts) == pytest.approx(100)
                assert all(p.percent >= 0 and p.source for p in time.parts)
