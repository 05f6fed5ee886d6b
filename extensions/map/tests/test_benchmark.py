"""The figures of the benchmark of races, of raw data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw
from extensions.map.benchmarks import map as benchmark


def data(raced: float, *winners: str) -> Any:
    """Points that took a second in full, where `best` takes 100 us, `near` 101 and `slow` 102."""
    full = {"best": 100.0, "near": 101.0, "slow": 102.0}
    points = {
        f"p{i}": {"seconds": [raced, 1.0], "us": [{v: 1.0 if v == winner else 2.0 for v in full}, full]}
        for i, winner in enumerate(winners)
    }
    every = {
        "q": {"us": {"a": 1.0}, "references": {"r": 2.0, "s": 0.5}},
        "w": {"us": {"a": 1.0}, "references": {"r": 1.0}},
    }
    return {"machine": "H", "points": points, "raced": every}


@pytest.mark.parametrize(
    ("measured", "code", "missed"),
    [
        (data(0.35, *["best"] * 49, "slow"), 0, 0),
        (data(0.2, *["near"] * 50), 0, 0),
        (data(0.36, *["best"] * 50), 1, 1),
        (data(0.3, *["best"] * 48, "slow", "slow"), 1, 1),
    ],
)
def test_cost_and_winners_decide(measured: dict[str, Any], code: int, missed: int) -> None:
    assert benchmark.verdict(measured) == code
    assert sum("MISSED" in line for line in benchmark.table(measured)) == missed


def test_two_runs_in_full_are_averaged_and_judge_each_other() -> None:
    measured = data(0.35, *["best"] * 48, "slow", "slow")
    assert benchmark.near(benchmark.of_race(measured)) == 0.96
    for point in measured["points"].values():
        point["us"].append({"best": 103.0, "near": 100.0, "slow": 101.0})
        point["seconds"].append(3.0)
    assert benchmark.losses(measured, 1, 2)[0] == pytest.approx(1.03)
    assert benchmark.losses(measured, 2, 1)[0] == pytest.approx(1.01)
    assert benchmark.near(benchmark.of_race(measured)) == 1.0, "100.5, 101.5 and 101.5 us"
    assert benchmark.cost(measured) == pytest.approx(0.175)
    assert any("at 0.0 % and 100.0 %" in line for line in benchmark.table(measured))


def test_each_reference_and_the_fastest_have_a_share_of_points() -> None:
    assert benchmark.ahead(data(0.2, "best")) == [
        "as fast as r at 100.0 % of 2 points",
        "as fast as s at 0.0 % of 1 points",
        "as fast as the fastest reference at 50.0 % of 2 points",
    ]


@pytest.mark.parametrize("name", ["map", "map.second", "map.cold"])
def test_committed_data_print_their_figures(name: str) -> None:
    found = raw.read(Path(benchmark.__file__).with_name("results") / f"{name}.json.xz", "map")
    assert any("timing everything" in line for line in benchmark.table(found))
