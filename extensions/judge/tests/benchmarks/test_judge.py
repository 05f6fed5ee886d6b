"""The score of cheats before the judge, from recorded verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from extensions.judge.benchmarks.judge import CONTROL, _steps, busy, table, verdict
from extensions.judge.tests.conftest import Judge


def judged(status: str, low: float = 0.0, high: float = 0.0, reasons: tuple[str, ...] = ()) -> dict[str, Any]:
    speedup = {"low": 10 / high, "high": 10 / low} if high else {}  # over 10 us
    same = {"low": 1.0, "high": 1.0}
    times = {"cold": {"us": (low + high) / 2, "speedup": speedup, "a_a": same}} if high else {}
    shapes = [{"shape": "main", "times": times}]
    return {"status": status, "reasons": [*reasons], "shapes": shapes, "at_s": 1.0, "device": {}, "seconds": {}}


@pytest.mark.parametrize(
    ("cheat", "outcome", "code"),
    [
        (judged("accepted", 9.7, 9.8), "won", 1),
        (judged("accepted", 9.7, 9.9), "harmless", 0),  # 10 us less 1 %
        (judged("accepted", 12.0, 12.1), "harmless", 0),
        (judged("rejected", reasons=("wrong",)), "rejected", 0),
        (judged("unmeasured"), "unmeasured", 0),
        (judged("rejected", reasons=("ESCAPED: ptrace",)), "rejected", 1),
    ],
)
def test_a_cheat_wins_if_it_is_accepted_and_faster(cheat: dict[str, Any], outcome: str, code: int) -> None:
    results = {CONTROL: judged("accepted", 9.99, 10.2), "cheat.00": cheat}
    assert f"cheat: {outcome} 1" in table(results) and verdict(results) == code


def test_without_a_control_an_accepted_cheat_counts_as_accepted() -> None:
    results = {"cheat.00": judged("accepted", 9.0, 9.1)}
    assert "cheat: accepted 1" in table(results) and verdict(results) == 1


def test_an_honest_candidate_is_convicted_if_it_is_rejected() -> None:
    assert [verdict({"honest.a": judged(status)}) for status in ("accepted", "unmeasured", "rejected")] == [0, 0, 1]


def test_a_difference_within_that_of_two_processes_is_no_win() -> None:
    control, cheat = judged("accepted", 9.99, 10.2), judged("accepted", 9.0, 9.1)
    for one, outcome in ((control, "won"), (cheat, "harmless")):
        assert f"cheat: {outcome} 1" in table({CONTROL: control, "cheat.00": cheat})
        one["shapes"][0]["times"]["cold"]["a_a"] = {"low": 0.85, "high": 1.0}
    assert "cheat: harmless 1" in table({CONTROL: control, "cheat.00": cheat})


def test_a_gpu_is_busy_while_it_has_a_candidate() -> None:
    seconds = {"inputs": 1.0, "kernels": 0.5, "waits": 0.25}
    on = [{**judged("accepted"), "device": {"uuid": gpu}, "seconds": seconds, "at_s": 4.0} for gpu in "aab"]
    elsewhere = {**judged("rejected"), "at_s": 9.0}  # before it needs a GPU
    assert busy({f"batch.{i}": one for i, one in enumerate([*on, elsewhere])}) == {"a": 0.75, "b": 0.375}


def test_the_steps_of_a_candidate_are_timed(judge: Judge) -> None:
    with _steps() as spent:
        one = judge()
    steps = spent[one.candidate]
    assert one.status == "accepted" and {*steps} == {"inputs", "answers", "kernels", "waits"}
    assert 0 < sum(steps.values()) <= one.seconds + 0.01 and min(steps.values()) >= 0  # a wait may round to 0
