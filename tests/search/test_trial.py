"""Candidates in a real child process on the CPU: the right ones are timed, the others fall where they are at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.search import trial
from flashcore.search.study import Result
from tests.softmax_cases import case

pytestmark = pytest.mark.usefixtures("forked")
NAMES = ("right", "wrong_scale", "exits", "slower")


def test_each_candidate_falls_by_itself(tmp_path: Path) -> None:
    candidates = [
        (Result(i, facts={"smem": 8.0}), [case(name), case(name, "wide", columns=300)]) for i, name in enumerate(NAMES)
    ]
    chosen = trial.Settings(samples=6, time_limit=60.0, device="cpu")
    found: dict[str, Result] = {}
    trial.run(candidates, tmp_path, chosen, lambda r: found.update({NAMES[r.index]: r}))
    assert list(found) == list(NAMES), "told as they come"
    for name in ("right", "slower"):  # which of the two took longer is a busy machine's to say
        assert found[name].times.keys() == {"small", "wide"} and all(t > 0 for t in found[name].times.values())
    assert found["right"].error is not None and found["right"].facts == {"smem": 8.0} and not found["right"].fell
    assert (found["wrong_scale"].fell, found["wrong_scale"].times) == ("check", {})
    assert "seed 0" in found["wrong_scale"].reason and found["wrong_scale"].reason.startswith("small: ")
    assert (found["exits"].fell, found["exits"].reason.partition(":")[0]) == ("check", "exit code 9")
    processes = len(list(tmp_path.glob("child-*.log")))
    again: dict[str, Result] = {}
    trial.run(candidates, tmp_path, chosen, lambda r: again.update({NAMES[r.index]: r}))
    assert again == found and len(list(tmp_path.glob("child-*.log"))) == processes, "what is answered is not run again"
