"""The benchmark of recorded nights: what it accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw
from benchmarks.history import CASE
from extensions.trends.benchmarks import nights
from extensions.trends.benchmarks.nights import CHANGED

RIGHT = {CHANGED + 1: [(CASE, "kernel")]}


def recorded(news: dict[int, list[tuple[str, str]]], count: int = 12) -> dict[str, Any]:
    """Nights with this news, (case, blame)."""
    commits = [f"{n:040x}" for n in range(1, count + 1)]
    span = f"{commits[CHANGED - 2][:12]}..{commits[CHANGED - 1][:12]}"
    told = {"new": True, "percent": 3.0, "standard_error": 0.01, "commits": span}
    changes = [[{**told, "case": c, "blame": b} for c, b in news.get(n, [])] for n in range(1, count + 1)]
    changes_by_commit = zip(commits, changes, strict=True)
    return {"machine": "m", "nights": [{"commit": c, "trends": {"changes": x}} for c, x in changes_by_commit]}


def test_the_slowdown_alone_is_accepted() -> None:
    assert nights.verdict(recorded(RIGHT)) == 0
    assert nights.verdict(recorded({**RIGHT, 9: [("steady1/main", "machine")]})) == 0
    text = "\n".join(nights.table(recorded(RIGHT)))
    assert "reported in night 8: +3.00 ± 0.02 %" in text


@pytest.mark.parametrize(
    "wrong",
    [
        recorded({}),
        recorded({CHANGED + 3: RIGHT[CHANGED + 1]}),
        recorded({CHANGED: [(CASE, "undecided")]}),
        recorded({**RIGHT, CHANGED: [("rewritten/main", "kernel")]}),
        recorded({**RIGHT, CHANGED - 1: [(CASE, "kernel")]}),
        recorded({**RIGHT, CHANGED + 3: [(CASE, "kernel")]}),
        recorded(RIGHT, count=9),
    ],
)
def test_what_is_late_false_or_missing_is_not(wrong: Any) -> None:
    assert nights.verdict(wrong) == 1


def test_another_range_of_commits_is_not_the_slowdown() -> None:
    wrong = recorded(RIGHT)
    wrong["nights"][CHANGED]["trends"]["changes"][0]["commits"] = "a..b"
    assert nights.verdict(wrong) == 1


def test_committed_data_print_their_figures() -> None:
    found = raw.read(Path(nights.__file__).with_name("results") / "nights.json.xz", "nights")
    assert nights.verdict(found) == 0 and "met" in "\n".join(nights.table(found))
