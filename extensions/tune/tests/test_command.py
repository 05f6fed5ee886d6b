"""A study's tables: the funnel adds up, nothing that was not measured is said to be, and the front is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from extensions.tune.tests.spaces import GRID, RECORDED, SPACE, header
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore_tune.command import study_text
from flashcore_tune.study import Header, Result
from flashcore_tune.summary import Summary, front

RESULTS = {r.index: r for r in RECORDED}


def text_of(head: Header, results: Mapping[int, Result] = RESULTS) -> str:
    return study_text(Summary(head, results))


def test_the_funnel_and_the_fastest_are_shown() -> None:
    text = text_of(header("grid", floor=1.0))
    rows = {line.split("  ")[0]: line.split()[-1] for line in text.splitlines() if line}
    assert rows["all points"] == "24" and rows["meet the conditions"] == str(len(GRID.feasible))
    for fell, reason in (("static", "cannot be launched"), ("check", "wrong")):
        assert f"{sum(r.fell == fell for r in RECORDED)} × {reason}" in text
    assert "registers by 10 %" in text, "the soft budget that a fast one broke"
    best = min((r for r in RECORDED if r.times), key=lambda r: r.times["small"])
    assert GRID.text(best.index) in text and "floor: 1" in text


def test_what_nobody_measured_is_unmeasured() -> None:
    built = {i: Result(i) for i in GRID.feasible}
    text = text_of(header("grid"), built)
    assert text.count("unmeasured") == 2 and "best, µs" not in text
    assert f"{len(built)} of {len(built)} that may be launched spill nothing and keep every budget" in text


def test_who_spills_or_breaks_a_budget_is_listed_without_a_gpu() -> None:
    built = {i: Result(i, facts={"spill_store_bytes": 0.0}) for i in GRID.feasible}
    first, second, third = GRID.feasible[:3]
    built[first] = Result(first, facts={"spill_store_bytes": 0.0}, broken={"registers": 0.5})
    built[second] = Result(second, facts={"spill_store_bytes": 64.0}, broken={"spills": 64.0})
    built[third] = Result(third, "static", "cannot be launched", broken={"registers": 2.0})
    rows = text_of(header("grid"), built).split("soft budgets broken")[1].splitlines()[2:]
    assert rows[0].split()[0] == str(second) and rows[0].split()[6] == "spills"
    assert rows[1].split()[0] == str(first) and "registers by 50 %" in rows[1]
    assert rows[2].startswith(f"{len(built) - 3} of {len(built) - 1} that may be launched")


def test_a_front_is_shown_where_there_are_several_objectives() -> None:
    several = header("grid", space=replace(SPACE, objectives=("time", "smem")))
    assert "Pareto front" in text_of(several)
    assert "Pareto front" not in text_of(header("grid"))
    points = {1: [1.0, 5.0], 2: [2.0, 2.0], 3: [2.0, 3.0], 4: [5.0, 1.0], 5: [5.0, 1.0]}
    assert front(points) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    "option",
    ["evaluations 0", "evaluations -1", "seconds 0", "batch 0", "processes 0", "finalists -1"],
)
def test_an_option_out_of_its_range_is_refused_before_a_suite_is_read(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "toy", "--suite", "nowhere", *f"--{option}".split()]) == Exit.USAGE
    assert f"--{option.split()[0]}" in capsys.readouterr().err
    assert main(["tune", "toy", "--suite", "nowhere", "--evaluations", "1", "--finalists", "0"]) == Exit.USAGE
    assert "nowhere" in capsys.readouterr().err


def test_an_unknown_sampler_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "toy", "--sampler", "tqe"])
    assert "did you mean tpe?" in capsys.readouterr().err
