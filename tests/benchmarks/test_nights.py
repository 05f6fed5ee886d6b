"""The benchmark of recorded nights: what it accepts, and the sources that it plants."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import nights
from benchmarks.nights import CASE, CHANGED, COMMITS, SLOW

RIGHT = {CHANGED + 1: [(CASE, "kernel")]}


def results(
    news: dict[int, list[tuple[str, str]]], *, first_slow: int = SLOW, steps: int = 6, count: int = 12
) -> dict[str, Any]:
    """Nights with this news, (case, blame), and a bisection with this outcome."""
    commits = [f"{n:040x}" for n in range(1, count + 1)]
    span = f"{commits[CHANGED - 2][:12]}..{commits[CHANGED - 1][:12]}"
    told = {"new": True, "percent": 3.0, "standard_error": 0.01, "commits": span}
    said = [[{**told, "case": c, "blame": b} for c, b in news.get(n, [])] for n in range(1, count + 1)]
    searched = [f"{n:040d}" for n in range(COMMITS + 1)]
    bisected = {"first_slow": searched[first_slow], "timed": dict.fromkeys(searched[:steps]), "alpha": 0.001}
    return {
        "machine": "m",
        "nights": [{"commit": c, "trends": {"changes": x}} for c, x in zip(commits, said, strict=True)],
        "bisect": {"commits": searched, "said": {**bisected, "changes": None, "counters": []}, "seconds": 1.0},
    }


def test_the_slowdown_alone_is_accepted() -> None:
    assert nights.verdict(results(RIGHT)) == 0
    assert nights.verdict(results({**RIGHT, 9: [("steady1/main", "machine")]})) == 0
    text = "\n".join(nights.table(results(RIGHT)))
    assert "reported in night 8: +3.00 ± 0.02 %" in text and "6, confidence 99.4 %: met" in text


@pytest.mark.parametrize(
    "wrong",
    [
        results({}),
        results({CHANGED + 3: RIGHT[CHANGED + 1]}),
        results({CHANGED: [(CASE, "undecided")]}),
        results({**RIGHT, CHANGED: [("rewritten/main", "kernel")]}),
        results({**RIGHT, CHANGED - 1: [(CASE, "kernel")]}),
        results({**RIGHT, CHANGED + 3: [(CASE, "kernel")]}),
        results(RIGHT, first_slow=SLOW - 1),
        results(RIGHT, steps=7),
        results(RIGHT, count=9),
    ],
)
def test_what_is_late_false_or_missing_is_not(wrong: Any) -> None:
    assert nights.verdict(wrong) == 1


def test_another_range_of_commits_is_not_the_slowdown() -> None:
    wrong = results(RIGHT)
    wrong["nights"][CHANGED]["trends"]["changes"][0]["commits"] = "a..b"
    assert nights.verdict(wrong) == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_each_edition_is_another_commit(tmp_path: Path) -> None:
    history = nights.History(tmp_path / "h")
    commits = [history.commit("first")]
    for longer in (0, 600):
        history.write("planted", 1, longer)
        commits.append(history.commit("next"))
    changed = history.git("diff", "--name-only", commits[0], commits[2])
    assert len({*commits}) == 3 and changed == "suite/planted.cu"
    assert "step < 600" in (history.suite / "planted.cu").read_text()
