"""The benchmark of many GPUs: its stand-ins for real, its figures on numbers that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import gpus


def run(number: int, us: float, seconds: float) -> dict[str, Any]:
    return {"gpus": number, "stages": {"bench": seconds}, "spread": {"GPU-a": 0.001}, "remarks": [],
            "busy": {"bench": {"GPU-a": seconds / 2}}, "medians": {"a/m/isolated": us}}  # fmt: skip


def test_cases_on_standins_are_answered_once_and_a_killed_driver_goes_on(tmp_path: Path) -> None:
    row = gpus._scale(tmp_path, 60, 2, 0.05)
    assert (row["cases"], row["uses"], row["lost"], row["twice"]) == (60, 2, 0, 0)
    assert min(row["wall_s"], row["bare_s"]) >= row["ideal_s"] == 1.5 and row["mib"] > 1


def test_what_the_machine_costs_is_told_from_what_sharing_adds() -> None:
    row = {"cases": 1000, "standins": 2, "uses": 2, "ideal_s": 20.0, "bare_s": 22.0, "wall_s": 24.2, "cpu_s": 0.1,
           "mib": 25.0, "at_kill": 500, "lost": 0, "twice": 0}  # fmt: skip
    line = gpus.table({"machine": "m", "scale": [row]})[1]
    assert "24.2 s, ideal 20.0 s (+21.0 %); a bare loop 22.0 s (+10.0 %), to which sharing adds +10.0 %" in line


def test_what_was_lost_or_answered_twice_is_a_failure() -> None:
    scale = {"lost": 0, "twice": 0}
    assert not gpus._wrong({"scale": [scale]})
    assert gpus._wrong({"scale": [scale, {**scale, "twice": 1}]}) == 1
    assert gpus._wrong({"kills": {"rows": [{**scale, "failed": 2}]}}) == 2


def test_what_a_killed_worker_cost_is_told_of_each() -> None:
    begun = [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("c", 3), ("b", 1), ("d", 3), ("e", 3)]
    assert gpus._cost(begun, [1, 2, 4]) == [1, 2, 0]
    row = {"cases": 5, "kills": 3, "failed": 0, "lost": 0, "twice": 0, "begun_again": 3, "of_killed": [1, 2, 0]}
    line = gpus.table({"machine": "m", "kills": {"ray": "2", "rows": [row], "kinds": {"worker": 3}}})[2]
    assert "3 workers died by them: of each 1.00 cases were begun again, 2 at most; 1 had been answered" in line


def test_two_gpus_are_held_against_one_and_one_against_itself() -> None:
    rows = [run(1, 100.0, 60.0), run(2, 101.0, 30.0), run(2, 101.0, 34.0), run(1, 100.2, 68.0)]
    lines = gpus.table({"machine": "m", "gpu": rows})
    assert "64.0 s on one GPU,     32.0 s on 2: 2.00 times the speed" in lines[1]
    assert lines[2].endswith("several against one: half within 1.00 %, all within 1.00 %")
    assert lines[3].endswith("(A/A): half within 0.20 %, all within 0.20 %")
    assert "GPU stages 64.0 s on one GPU, 32.0 s on 2: 2.00 times the speed" in lines[4]
    assert lines[5] == "a task was in progress for 50 % of bench"
