"""The benchmark of bisect: what it accepts, and the commits that it plants."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bisect
from benchmarks.bisect import COMMITS, SLOW
from benchmarks.history import History


def searched(first_slow: int, steps: int) -> dict[str, Any]:
    """A bisection with this outcome."""
    commits = [f"{n:040d}" for n in range(COMMITS + 1)]
    row = {"outcome": "slower", "changes": [{"ratio": 0.97, "noise": 0.001}]}
    answer = {"first_slow": commits[first_slow], "timed": dict.fromkeys(commits[:steps], row), "alpha": 0.001}
    return {"machine": "m", "commits": commits, "answer": {**answer, "changes": None, "counters": []}, "seconds": 1.0}


@pytest.mark.parametrize(("first_slow", "steps", "code"), [(SLOW, 6, 0), (SLOW - 1, 6, 1), (SLOW, 7, 1), (SLOW, 0, 1)])
def test_the_slow_commit_is_to_be_named_in_six_steps(first_slow: int, steps: int, code: int) -> None:
    results = searched(first_slow, steps)
    assert bisect.verdict(results) == code
    assert f"{steps}, confidence {100 - 0.1 * steps:.4g} %" in "\n".join(bisect.table(results))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_each_edition_is_another_commit(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    commits = [history.commit("first")]
    for longer in (0, 600):
        history.write("planted", 2, longer)
        commits.append(history.commit("next"))
    changed = history.git("diff", "--name-only", commits[0], commits[2])
    assert len({*commits}) == 3 and changed == "suite/planted.cu"
    assert "step < 600" in (history.suite / "planted.cu").read_text()
