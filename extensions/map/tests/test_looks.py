"""Looks drop the cases that are far from the fastest; the others get few samples each, in a real process on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from flashcore.machine import python_process
from flashcore.model.case import Case
from flashcore.model.causes import WRONG_TIMED_ANSWER, FirstRound
from flashcore.model.record import CaseSubject, Facts, StageResult
from flashcore.model.settings import Bench, Limits
from flashcore.runner import journal
from flashcore.runner.process import LocalGpu
from flashcore.runner.queue import Pool
from flashcore.stages.bench import bench
from flashcore_map.looks import Nearest
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")
CHILD = python_process.child("flashcore_map.looks")
VARIANTS = ("right", "slower", "raises", "exits", "wrong_scale")


def timed(folder: Path, first: int) -> StageResult:
    cases = [case(v) for v in VARIANTS] + [case("library", reference=True)]
    chosen = Bench(samples=12, first=first, max_samples=12, modes=("isolated",), limits=Limits(time_limit=6.0))
    context = staged.context(folder, "slower", bench=chosen, resident=CHILD)
    return bench.run(context, cases)


@pytest.mark.parametrize("first", [0, 1])
def test_a_variant_falls_by_itself_and_the_others_are_timed(tmp_path: Path, first: int) -> None:
    result = timed(tmp_path, first)
    outcomes = {o.variant: o for o in result.outcomes}
    dropped = {f.subject.variant for f in result.facts if isinstance(f.detail, FirstRound)}
    timed_further = {name for name, o in outcomes.items() if o.status == "ok"} - dropped
    assert timed_further <= {"right", "slower", "library"} <= timed_further | dropped and (first or not dropped)
    assert "invalid configuration argument" in outcomes["raises"].reason
    assert "exit code 9" in outcomes["exits"].reason
    assert getattr(outcomes["wrong_scale"].cause, "code", "") == WRONG_TIMED_ANSWER.code or "wrong_scale" in dropped
    assert Facts(result.facts).number("isolated_p50", CaseSubject(Case("right", "small")))
    processes = len(list(tmp_path.glob("bench/child-*.log")))
    assert timed(tmp_path, first) == result and len(list(tmp_path.glob("bench/child-*.log"))) == processes


def test_gpus_share_the_points_and_an_interrupted_race_times_only_what_is_left(tmp_path: Path) -> None:
    two = (LocalGpu("GPU-a"), LocalGpu("GPU-b"))
    points = {s: [case(v, s, columns=37 + i) for v in ("right", "slower")] for i, s in enumerate(("p", "q", "r", "s"))}
    chosen = Bench(samples=12, first=1, max_samples=12, modes=("isolated",))

    def race(count: int, *places: LocalGpu) -> list[str]:
        context = staged.context(tmp_path, "slower", bench=chosen, resident=CHILD, workers=Pool(places))
        with context.workers:
            cases = [one for name in list(points)[:count] for one in points[name]]
            assert {o.status for o in bench.run(context, cases).outcomes} == {"ok"}
        return sorted(name for path in tmp_path.glob("bench/journal-*.jsonl") for name in journal.begun(path))

    assert race(2, *two) == ["p", "q"]
    assert race(4, *two) == race(4, two[0]) == ["p", "q", "r", "s"]


def test_without_racing_each_case_has_all_samples(tmp_path: Path) -> None:
    result = timed(tmp_path, 0)
    assert all(len(v) == 12 for v in result.samples.values()) and len(result.samples) == 3
    details = {f.subject.variant: f.detail for f in result.facts if f.name == "isolated_samples"}
    assert not any(isinstance(d, FirstRound) for d in details.values())


class Stub:
    """An entrant with these us of its looks, in order; the first one's are of the first round."""

    is_right = True

    def __init__(self, variant: str, *us: float, is_reference: bool = False, late: float = math.inf) -> None:
        self.variant, self.is_reference, self._late = variant, is_reference, late
        self._next, self.us = iter(us), list[float]()
        self.look()

    warm = property(lambda self: self.us[1:] or self.us)
    is_late = property(lambda self: self.us[-1] >= self._late)

    def look(self) -> None:
        self.us.append(next(self._next))


def lost(entrants: Sequence[Stub], share: float = 0.3) -> list[str]:
    return [one.variant for one in Nearest(["d"]).dropped(cast("Any", entrants), share)]


def after(variant: str, *us: float) -> Stub:
    """An entrant that has been looked at in this many rounds; the last look again gives the same."""
    stub = Stub(variant, *us, us[-1])
    for _ in us[1:]:
        stub.look()
    return stub


@pytest.mark.parametrize(
    ("fastest", "share", "most"), [(100.0, 0.3, 130.0), (100.0, 0.01, 101.0), (10.0, 0.1, 13.0), (10.0, 0.005, 10.3)]
)
def test_the_limit_is_a_share_but_never_less_than_looks_at_short_calls_tell(
    fastest: float, share: float, most: float
) -> None:
    entrants = [after("a", fastest), after("b", most - 0.01), after("c", most + 0.01)]
    assert lost(entrants, share=share) == ["c"]


def test_one_disturbed_look_drops_no_case() -> None:
    entrants = [Stub("a", 10.0), Stub("b", 90.0, 10.0), Stub("c", 90.0, 80.0)]
    assert lost(entrants) == ["c"]
    assert [one.us for one in entrants] == [[10.0], [10.0], [80.0]], "only those that are far are looked at again"
    rounds = [after("a", 10.0, 10.0, 10.0, 10.0), after("b", 10.0, 10.1, 90.0, 10.1)]
    assert lost(rounds, share=0.01) == []
    assert lost([after("a", 10.0, 10.0, 10.0), after("b", 10.0, 90.0, 10.1)], share=0.01) == []


def test_looks_of_the_same_round_are_compared_and_the_first_only_alone() -> None:
    a = after("a", 50.0, 100.0, 110.0, 130.0)
    assert lost([a, after("b", 100.0, 101.0, 111.0, 131.0)], share=0.02) == []
    assert lost([a, after("b", 50.0, 104.0, 114.0, 134.0)], share=0.02) == ["b"], "the clock fell for both"


def test_far_is_from_the_fastest_right_choice() -> None:
    wrong, dispatcher = Stub("a", 1.0), Stub("d", 2.0)
    wrong.is_right = False
    entrants = [wrong, dispatcher, Stub("b", 300.0), Stub("c", 380.0), Stub("e", 400.0, 400.0)]
    assert lost(entrants) == ["e"]
    assert lost([Stub("d", 2.0), Stub("r", 90.0, 90.0, is_reference=True)]) == ["r"], (
        "without a choice, from the fastest"
    )
    assert lost([wrong]) == [], "without a right one nothing is far"


def test_a_dispatcher_stays_however_slow_it_is() -> None:
    assert lost([Stub("a", 10.0), Stub("d", 90.0)]) == []


#: us of the looks: of each, or of one after another; from ``LATE`` on a look has a part of the host's time.
US: dict[str, float | Sequence[float]] = {"a": 12.0, "far": 17.0, "library": 9.0, "chooses": 10.1}
LATE = 200.0
MEDIANS = {"a": 10.0, "library": 7.0, "chooses": 8.1}


def chosen(**us: float | Sequence[float]) -> tuple[Nearest, list[str]]:
    """A selection after all looks, and what it chose of the cases above."""
    stubs = [
        Stub(name, *([of] * 9 if isinstance(of, float) else of), is_reference=name == "library", late=LATE)
        for name, of in {**US, **us}.items()
    ]
    steps: list[str] = []
    nearest = Nearest(["chooses", "of_another_problem"])
    near = nearest.choose(cast("Any", stubs), steps.append)
    assert len({*steps}) == len(steps) > 1, "each round has a time limit"
    return nearest, [one.variant for one in near]


def samples(us: Mapping[str, float]) -> dict[str, list[float]]:
    return {name: [one] * 5 for name, one in us.items()}


@pytest.mark.parametrize(("fastest", "dropped"), [(10.0, 15.0), (16.0, 16.0001)])
def test_a_dropped_case_keeps_its_looks_without_what_looks_take_longer(fastest: float, dropped: float) -> None:
    nearest, left = chosen()
    assert left == ["a", "library", "chooses"]
    times = nearest.times(samples({**MEDIANS, "a": fastest}))
    assert times == {"far": pytest.approx(dropped)}, "above the fastest, which no dispatcher is"


def test_where_a_dispatcher_is_behind_all_that_are_left_get_more_samples() -> None:
    nearest, _ = chosen()
    assert nearest.fewest < nearest.most
    assert nearest.is_enough(samples({**MEDIANS, "chooses": 10.1}))
    assert not nearest.is_enough(samples({**MEDIANS, "chooses": 10.3}))
    assert nearest.is_enough(samples({"a": 10.0, "library": 7.0})), "no dispatcher was timed"


def test_a_disturbed_look_is_no_part_of_a_dropped_cases_time() -> None:
    nearest, left = chosen(far=(17.0, 277.0, 17.0, 17.0))
    assert "far" not in left and nearest.times(samples(MEDIANS)) == {"far": pytest.approx(15.0)}


def test_a_look_that_the_host_disturbed_drops_no_case() -> None:
    entrants = [Stub("a", 10.0), Stub("b", 90.0, 90.0, late=90.0), Stub("c", 90.0, 90.0)]
    assert lost(entrants) == ["c"]
