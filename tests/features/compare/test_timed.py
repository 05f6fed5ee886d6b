"""The output of a comparison of two revisions, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flashcore.errors import Exit
from flashcore.explain.comparison import Change, Comparison, Difference, Outcome, Side
from flashcore.explain.times import Speedup
from flashcore.features.compare import against
from flashcore.features.compare.against import AgainstOptions, TimedBuilds
from flashcore.features.compare.bench_options import as_text
from flashcore.features.compare.match_cases import MatchedCase
from flashcore.features.compare.time_pairs import LostContest, Times, Timings
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject
from flashcore.model.slower import ProcessTimes
from tests import factory


def row(variant: str, outcome: Outcome, changes: Sequence[Change] = ()) -> Difference:
    return Difference(CaseSubject(Case(variant, "s")), outcome, changes)


def timed(*rows: Difference, obstacle: str = "") -> TimedBuilds:
    sides = Side("main", "toy", "NVIDIA H200", "13.0.88", "0" * 40), Side("working tree", "toy", "NVIDIA H200")
    return TimedBuilds(Comparison(*sides, rows), AgainstOptions("main"), 100, obstacle=obstacle)


@pytest.mark.parametrize(
    ("outcomes", "obstacle", "code"),
    [
        ([], "", Exit.OK),
        (["same code", "no difference", "too small to matter", "faster", "unsupported"], "", Exit.OK),
        (["nothing to compare with"], "", Exit.OK),
        (["no difference", "undecided"], "", Exit.UNMEASURED),
        (["slower", "undecided"], "", Exit.FAILED),
        (["failed"], "no GPU", Exit.FAILED),
        (["undecided"], "no GPU", Exit.INCAPABLE),
    ],
)
def test_the_exit_code(outcomes: list[Any], obstacle: str, code: Exit) -> None:
    found = timed(*(row(f"v{i}", outcome) for i, outcome in enumerate(outcomes)), obstacle=obstacle)
    assert found.exit_code == code
    assert f"(exit {int(code)})" in as_text(found)


def test_the_table_tells_the_spread_of_no_change() -> None:
    def case(variant: str, outcome: Outcome, *processes: ProcessTimes) -> Difference:
        subject, ratio = CaseSubject(Case(variant, "s")), Speedup(10 / 10.2)
        change = Change(subject, "isolated_p50", "us", 10.0, 10.2, outcome, "processes", ratio, 0.004, processes)
        return row(variant, outcome, (change,))

    slow = case("slow", "slower", ProcessTimes(0.02, 0.001), ProcessTimes(0.021, -0.004))
    text = as_text(timed(case("calm", "no difference", ProcessTimes(0.0, 0.002)), slow, row("old", "same code")))
    line = next(line for line in text.splitlines() if line.startswith("slow/s"))
    assert line.split() == ["slow/s", "isolated", "10", "µs", "10.2", "µs", "0.980", "±0.40", "%", "slower"]
    assert text.index("slow/s") < text.index("calm/s") and "same code: old/s" in text
    assert "the largest difference 0.40 % (slow/s)" in text
    assert text.endswith("against FAILED: 1 slower, 1 no difference, 1 same code (exit 1)")


def test_of_many_cases_six_are_named() -> None:
    text = as_text(timed(*(row(f"v{i}", "same code") for i in range(8)), row("x", "undecided")))
    assert "same code: v0/s, v1/s, v2/s, v3/s, v4/s, v5/s and 2 more\n" in text
    assert "undecided: x/s\n" in text


def test_a_build_that_fails_while_it_is_timed() -> None:
    times = [Times((10.0,) * 5, (10.0,) * 5, (10.0,) * 5)] * 4
    lost = {
        "a/s": LostContest("after", "hang?"),
        "b/s": LostContest("again", "hang?"),
        "c/s": LostContest("", "no memory"),
    }
    pairs = [MatchedCase(v := factory.variant(name), v, factory.shape("s"), ("s",)) for name in "abcd"]
    rows = {
        r.subject.variant: r for r in against._decided(pairs, Timings({"d/s": times}, lost), AgainstOptions("main"))
    }
    assert {name: row.outcome for name, row in rows.items()} == {
        "a": "failed", "b": "undecided", "c": "undecided", "d": "no difference"
    }  # fmt: skip
    assert rows["b"].reason == "main could not be timed: hang?"
    (time,) = rows["d"].changes
    assert time.before == pytest.approx(10.0)
    assert (time.ratio, time.mode) == (1, "isolated")
