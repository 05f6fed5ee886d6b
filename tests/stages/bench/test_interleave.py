"""The number of timed single calls: enough for a percentile, within a time limit."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flashcore.machine.gpu_state import Watch
from flashcore.stages.bench import interleave
from flashcore.stages.bench.interleave import Turns
from flashcore.stages.bench.statistics import P90_SAMPLES, P99_SAMPLES, StopRule, percentiles


class Calls:
    """Ten calls a turn, each of which takes so many seconds by the clock that it sets forward."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def monotonic(self) -> float:
        return self.now

    def each(self, mode: str, *, calls: bool = True, first: bool = True) -> list[float]:
        self.now += 10 * self.seconds * calls
        return [self.seconds * 1e6 + 1.0] * 10 if calls else [1.0] * 10


@pytest.mark.parametrize(
    ("us", "count"),
    [
        (5, P99_SAMPLES),  # all of them in 5 ms
        (490, P99_SAMPLES),  # just in time
        (600, P90_SAMPLES),  # the 99th percentile would come too late, and the 90th needs no more
        (2_000, P90_SAMPLES),
        (8_000, 70),  # half a second is over
        (900_000, 10),  # never fewer than a turn
    ],
)
def test_no_more_calls_than_a_percentile_needs(us: float, count: int) -> None:
    one: Any = Calls(us * 1e-6)
    rule, turns = StopRule(slow_seconds=1.0), Turns(Watch("cpu"), lambda *_: None, now=one.monotonic)
    (result,) = interleave.distributions({"slow": one}, "isolated", rule, turns, {"slow": rule.most}).values()
    assert result == pytest.approx([us] * count)
    assert turns.spent["slow"] == pytest.approx(one.now)
    recorded = [p is not None for p in percentiles(result)]
    assert recorded == [count >= P90_SAMPLES, count >= P99_SAMPLES]


def test_of_some_only_as_many_as_are_asked_for() -> None:
    ready: Any = {label: Calls(5e-6) for label in ("chosen", "companion")}
    most, turns = {"chosen": 1000, "companion": P90_SAMPLES}, Turns(Watch("cpu"), lambda *_: None)
    result = interleave.distributions(ready, "cold", StopRule(), turns, most)
    assert {label: len(calls) for label, calls in result.items()} == most


def test_an_empty_launch_that_stays_noisy_holds_nothing_up() -> None:
    class Launch:
        def __init__(self, *values: float) -> None:
            self.values = itertools.cycle(values)

        def cold(self) -> float:
            return next(self.values)

    ready: Any = {"call": Launch(5.0), "noisy": Launch(5.0, 5.1, 5.2), "empty": Launch(0.5, 1.0, 1.5)}
    rule = StopRule(least=10, most=1000, noise=0.004, seconds=60.0)
    turns = Turns(Watch("cpu"), lambda *_: None)
    result = interleave.sample(ready, "cold", rule, turns, fillers={"empty"})
    assert len(result["call"]) == 10 < len(result["noisy"]) == len(result["empty"]) < 1000
    alone = interleave.sample({"empty": ready["empty"]}, "cold", rule, turns)
    assert len(alone["empty"]) == 1000


def test_no_call_has_always_the_same_one_before_it() -> None:
    order: list[str] = []
    ready: Any = {label: Calls(5e-6) for label in "abc"}
    for one in ready.values():
        one.isolated = lambda: 5.0
    interleave.sample(
        ready, "isolated", StopRule(least=9, most=9), Turns(Watch("cpu"), lambda _, label: order.append(label))
    )
    turns = [order[at : at + 3] for at in range(0, len(order), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns) and len(turns) == 9
    assert {turn[0] for turn in turns} == {"a", "b", "c"}
    assert {before for before, after in itertools.pairwise(order) if after == "b"} >= {"a", "c"}
