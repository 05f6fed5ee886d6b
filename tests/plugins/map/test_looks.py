"""Looks drop the cases that are far from the fastest; the others get few samples each, in a real process on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.measure.bench import case_times
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Bench
from flashcore.measure.workers.journal import Journal, Task
from flashcore.measure.workers.program import Limits
from flashcore.measure.workers.references import References
from flashcore.model.causes import FirstRound, WrongTimedAnswer
from flashcore.model.record import Facts, StageResult, Subject
from flashcore.plugins.map import looks
from tests import stages
from tests.softmax_cases import case

pytestmark = pytest.mark.usefixtures("forked")
CHILD = python_process.child("flashcore.plugins.map.looks")
RACE = {"first": 1, "full": {"chooses": []}}
VARIANTS = ("right", "slower", "raises", "exits", "wrong_scale")


def timed(folder: Path, first: int) -> StageResult:
    cases = [case(v) for v in VARIANTS] + [case("library", peer=True)]
    chosen = Bench(samples=12, first=first, max_samples=12, modes=("isolated",), limits=Limits(time_limit=6.0))
    context = stages.context(folder, "slower", bench=chosen, resident=CHILD)
    return case_times.run(context, cases, folder)


@pytest.mark.parametrize("first", [0, 1])
def test_a_variant_falls_by_itself_and_the_others_are_timed(tmp_path: Path, first: int) -> None:
    result = timed(tmp_path, first)
    outcomes = {o.variant: o for o in result.outcomes}
    dropped = {f.subject.variant for f in result.facts if isinstance(f.detail, FirstRound)}
    timed_further = {name for name, o in outcomes.items() if o.status == "ok"} - dropped
    assert timed_further <= {"right", "slower", "library"} <= timed_further | dropped and (first or not dropped)
    assert "invalid configuration argument" in outcomes["raises"].reason
    assert "exit code 9" in outcomes["exits"].reason
    assert isinstance(outcomes["wrong_scale"].cause, WrongTimedAnswer) or "wrong_scale" in dropped
    assert Facts(result.facts).number("isolated_p50", Subject("right", shape="small"))
    processes = len(list(tmp_path.glob("child-*.log")))
    assert timed(tmp_path, first) == result and len(list(tmp_path.glob("child-*.log"))) == processes


def test_without_racing_each_case_has_all_samples(tmp_path: Path) -> None:
    result = timed(tmp_path, 0)
    assert all(len(v) == 12 for v in result.samples.values()) and len(result.samples) == 3
    details = {f.subject.variant: f.detail for f in result.facts if f.name == "isolated_samples"}
    assert not any(isinstance(d, FirstRound) for d in details.values())


def test_the_more_looks_agree_the_nearer_a_case_must_be_to_the_fastest() -> None:
    assert looks.limit(100.0, 0, []) == 150.0, "clocks still rise at the first call"
    assert looks.limit(100.0, 1, [1.2]) == pytest.approx(140.0)
    assert looks.limit(100.0, 2, [1.01, 1.01, 1.5]) == 102.0
    assert looks.limit(100.0, 2, [1.01, 1.05, 1.5]) == pytest.approx(110.0)
    assert looks.limit(4.0, 3, [1.0]) == 4.3, "looks at short calls are no more exact"


def test_one_disturbed_look_drops_no_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": iter([10.0] * 9), "b": iter([90.0, *[10.0] * 9]), "c": iter([90.0] * 9)}

    class Stub:
        is_right = True

        def __init__(self, case: Any, *_: object) -> None:
            self.case = case
            self.us: list[float] = []
            self.first = next(times[case.variant])
            self.look = lambda: self.us.append(next(times[case.variant]))

        least = property(lambda self: min(self.us, default=self.first))

    cases = [replace(case("right"), variant=name, rank_by="back_to_back") for name in "abc"]
    payload = {"device": "cpu", "cases": [one.to_json() for one in cases]}
    monkeypatch.setattr(looks, "Entrant", Stub)
    monkeypatch.setattr(References, "get", lambda *_: None)
    near, far = looks.looks(Task("shape", payload), Journal(tmp_path / "journal-001.jsonl"), References(), "abc")
    assert near.keys() == {"a", "b"} and far == {"c": [90.0]}


def test_a_dropped_case_keeps_its_looks_without_what_looks_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[dict[str, Any]] = []

    def bench(task: Task, log: Journal, answers: object) -> dict[str, Any]:
        requested.append(dict(task.payload))
        timed = {"a": [9.0, 9.9999, 10.0, 11.0], "b": [12.0]}
        return {"variants": {v: {"samples": {"back_to_back": us}} for v, us in timed.items()}}

    near, far = {"a": [12.0, 14.0], "b": [14.0]}, {"c": [17.0, 15.0], "d": [11.0]}
    monkeypatch.setattr(looks, "looks", lambda *_: (near, far))
    monkeypatch.setattr("flashcore.measure.bench.child.perform", bench)
    cases = [replace(case("right"), variant=name, rank_by="back_to_back").to_json() for name in "abcd"]
    task = Task("shape", {"cases": cases, "race": RACE, "rule": {"least": 20, "seconds": 0.5}})
    times = looks.perform(task, Journal(tmp_path / "journal-001.jsonl"))["variants"]
    assert [case["variant"] for case in requested[0]["cases"]] == ["a", "b"]
    assert requested[0]["rule"]["least"] < 20, "all that are left get few samples"
    assert times["c"]["samples"] == {"back_to_back": [14.5, 12.5]} and times["c"]["stopped"] == ["back_to_back"]
    (loser,) = times["d"]["samples"]["back_to_back"]
    assert loser == round(loser, 4) and 9.99995 < loser < 10.001, "slower than the fastest, as its record will say"


def test_the_dispatcher_that_is_judged_gets_all_samples_however_slow_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[dict[str, Any]] = []

    def bench(task: Task, log: Journal, answers: object) -> dict[str, Any]:
        requested.append(dict(task.payload))
        each = {"a": 10.0, "library": 9.0, "early": 9.5, "chooses": 10.3}
        return {"variants": {n: {"samples": {"back_to_back": [us]}} for n, us in each.items()}, "failed": {}}

    monkeypatch.setattr(looks, "looks", lambda *_: ({"a": [10.0]}, {"far": [9.9]}))
    monkeypatch.setattr("flashcore.measure.bench.child.perform", bench)
    cases = [case("right"), case("library", peer=True)]
    cases = [replace(cases[name == "library"], variant=name) for name in ("a", "early", "chooses", "far", "library")]
    payload = {"cases": [replace(c, rank_by="back_to_back").to_json() for c in cases], "race": RACE, "rule": {}}
    log, dispatchers = Journal(tmp_path / "journal-001.jsonl"), ["early", "chooses", "of_another_problem"]
    times = looks.perform(Task("shape", payload), log, dispatchers)["variants"]
    assert requested[0]["race"] == {"first": 1, "full": {"chooses": ["back_to_back"]}}
    assert requested[0]["rule"]["fewest"] < requested[0]["rule"]["least"], "bench's race drops what is slower"
    assert times["far"]["samples"]["back_to_back"] == [10.0001], "neither dispatchers nor references win"


def test_a_dispatcher_stays_however_slow_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stub:
        is_right = True

        def __init__(self, case: Any, *_: object) -> None:
            self.case, self.us, self.least = case, [1.0], 50.0 if case.variant == "b" else 2.0
            self.look = lambda: None

    payload = {"device": "cpu", "cases": [replace(case("right"), variant=name).to_json() for name in "ab"]}
    monkeypatch.setattr(looks, "Entrant", Stub)
    monkeypatch.setattr(References, "get", lambda *_: None)
    log = Journal(tmp_path / "journal-001.jsonl")
    assert looks.looks(Task("shape", payload), log, References(), ["a"], "b")[1] == {}
    assert looks.looks(Task("shape", payload), log, References(), ["a"])[1].keys() == {"b"}


def test_without_a_race_every_case_is_timed_by_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashcore.measure.bench.child.perform", lambda task, log: {"whole": task.payload["cases"]})
    task = Task("shape", {"cases": [1, 2], "race": None})
    assert looks.perform(task, Journal(tmp_path / "journal-001.jsonl")) == {"whole": [1, 2]}
