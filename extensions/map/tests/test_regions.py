"""A map's figures: regret, margin, floor and reference of each point, their quantiles, and the limits on regret."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from extensions.map.tests import maps
from flashcore.errors import UsageError
from flashcore.model.intervals import quantiles
from flashcore.model.suite import Params
from flashcore_map.regions import Regions
from tests import factory


def test_a_point_has_its_fastest_variant_and_the_regret_of_the_dispatcher() -> None:
    regions = Regions(maps.record())
    assert len(regions.spots) == 60 and not regions.untimed
    for spot in regions.spots:
        of = maps.times(spot.shape.params)
        library = of.pop("cudnn")
        least = min(of.values())
        assert spot.best != "chooses" and of[spot.best] == least and "cudnn" not in spot.times
        assert spot.regret("chooses") == spot.dispatched.value == pytest.approx(of["chooses"] / least)
        assert spot.figures["margin"] == pytest.approx(max(of["small"], of["large"]) / least)
        assert spot.figures["over_reference"] == pytest.approx(least / library)
        assert 0 < spot.figures["share"] < 1


def test_limits_on_regret_are_verdicts() -> None:
    (verdict,) = (regions := Regions(maps.record())).verdicts
    assert (verdict.status, verdict.fact, verdict.limit) == ("fail", "regret", "p99 ≤ 1.05")
    assert verdict.value == regions.quantiles(s.dispatched.value for s in regions.spots)["p99"].value
    (loose,) = Regions(maps.record(regret={"p50": 1.0})).verdicts
    assert (loose.status, loose.value) == ("pass", 1.0)
    (unknown,) = Regions(maps.record(dispatchers=[])).verdicts
    assert (unknown.status, unknown.value) == ("unmeasured", None) and unknown.cause is not None


def slower(params: Params) -> dict[str, float]:
    times = maps.times(params)
    return {**times, "chooses": 1.1 * min(times["small"], times["large"])}


def test_a_limit_is_missed_only_if_the_times_tell() -> None:
    made = maps.record(30, of=slower)
    noisy = {
        name: tuple(x / (1 if i < 6 else 1.1) for i, x in enumerate(times)) if name[0].variant == "chooses" else times
        for name, times in made.samples.items()
    }
    (told,) = Regions(made).verdicts
    (untold,) = (regions := Regions(replace(made, raw_samples=noisy))).verdicts
    assert told.status == "fail" and told.value == pytest.approx(1.1) and told.cause is None
    assert untold.status == "unmeasured" and untold.value == pytest.approx(1.1) and untold.cause is not None
    assert "at least 1.000 by the times" in untold.reason
    assert {spot.dispatched.text for spot in regions.spots} == {"1.100 [1.000, 1.100]"}


def refuses_long_rows(params: Params) -> dict[str, float]:
    times = maps.times(params)
    return {n: us for n, us in times.items() if float(params["S"]) < 2048 or n not in ("chooses", "cudnn")}


def test_a_dispatcher_that_does_not_run_has_infinite_regret() -> None:
    regions = Regions(maps.record(of=refuses_long_rows))
    lacking = [s for s in regions.spots if "chooses" not in s.times]
    assert lacking and all(math.isinf(s.dispatched.value) and math.isnan(s.figures["over_reference"]) for s in lacking)
    (verdict,) = regions.verdicts
    assert (verdict.status, verdict.value) == ("fail", None)


def test_points_without_a_timed_variant_are_counted() -> None:
    regions = Regions(maps.record(of=lambda p: maps.times(p) if float(p["S"]) < 2048 else {"cudnn": 5.0}))
    long = sum(float(s.params["S"]) >= 2048 for s in regions.record.suite.shapes.values())
    assert 0 < len(regions.spots) == 60 - long < 60
    (verdict,) = regions.verdicts
    assert f"{len(regions.spots)} points, {long} more without a time" in verdict.reason


def test_a_regret_over_the_points_that_have_times_is_no_pass_while_others_have_none() -> None:
    (lacking,) = Regions(maps.record(regret={"p99": 9.0}, of=lambda p: maps.times(p) if p["D"] == 64 else {})).verdicts
    assert lacking.status == "unmeasured" and lacking.cause is not None
    (strict,) = Regions(maps.record(regret={"p99": 1.0}, of=lambda p: maps.times(p) if p["D"] == 64 else {})).verdicts
    assert strict.status == "fail"


def test_one_point_and_equal_times() -> None:
    (spot,) = Regions(maps.record(1, of=lambda p: {"small": 3.0, "large": 3.0, "chooses": 3.0})).spots
    assert (spot.best, spot.figures["margin"], spot.dispatched.text) == (
        "large",
        1.0,
        "1.000 [1.000, 1.000]",
    ) and math.isnan(spot.figures["over_reference"])
    assert all(rows is not None for _, _, rows in Regions(maps.record(1)).tables)


def test_other_records_are_refused() -> None:
    for record in (factory.record(), replace(maps.record(), suite=maps.suite())):
        with pytest.raises(UsageError, match="expected the record of a map, found another"):
            Regions(record)


def test_a_map_in_which_all_failed_is_unmeasured() -> None:
    regions = Regions(maps.record(of=lambda p: {}))
    assert not regions.spots and regions.untimed == 60 and all(rows is not None for _, _, rows in regions.tables)
    assert [(v.status, v.value) for v in regions.verdicts] == [("unmeasured", None)]


def test_every_table_has_its_points() -> None:
    tables = {title: rows for title, _, rows in Regions(maps.record()).tables}
    assert sum(int(row[1]) for row in tables["Winners"]) == 60
    assert sum(float(row[2]) for row in tables["Winners"]) == pytest.approx(100, abs=0.2)
    worst = [float(row[-1].split()[0]) for row in tables["Largest regret"]]
    assert worst == sorted(worst, reverse=True) and min(worst) > 1 and len(worst) <= 20


# --- quantiles --------------------------------------------------------------------------------------

SHARES = {"p50": 0.5, "p99": 0.99, "p100": 1.0}


def test_quantiles_are_the_least_values_with_their_share_of_the_weight() -> None:
    plain = quantiles([(float(n), 1.0) for n in range(1, 101)], SHARES)
    assert [r.value for r in plain.values()] == [50.0, 99.0, 100.0]
    assert all(r.low <= r.value <= r.high for r in plain.values()) and 35 < plain["p50"].low < plain["p50"].high < 65
    weighted = quantiles([(1.0, 98.0), (5.0, 1.0), (9.0, 1.0)], SHARES)
    assert [r.value for r in weighted.values()] == [1.0, 5.0, 9.0]
    assert quantiles([(2.0, 3.0)], SHARES)["p99"].text == "2.000 [2.000, 2.000]"
    assert math.isinf(quantiles([(1.0, 1.0), (math.inf, 1.0)], SHARES)["p100"].value)
