"""Candidates in a real child process on the CPU: the right ones are timed, the others fall where they are at fault."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.errors import UsageError
from flashcore.measure.workers.pool import Pool
from flashcore.model import plugin
from flashcore_tune import candidates, trial
from flashcore_tune.study import Result
from tests.softmax_cases import case

pytestmark = pytest.mark.usefixtures("forked")
NAMES = ("right", "wrong_scale", "exits", "slower")


def test_each_candidate_falls_by_itself(tmp_path: Path) -> None:
    requested = [
        (Result(i, facts={"smem": 8.0}), [case(name), case(name, "wide", columns=300)]) for i, name in enumerate(NAMES)
    ]
    results: dict[str, Result] = {}
    trial.run(requested, tmp_path, lambda r: results.update({NAMES[r.index]: r}), Pool(), "cpu")
    assert list(results) == list(NAMES), "told as they come"
    for name in ("right", "slower"):  # which of the two took longer is a busy machine's to say
        assert results[name].times.keys() == {"small", "wide"} and all(t > 0 for t in results[name].times.values())
    assert results["right"].error is not None and results["right"].facts == {"smem": 8.0} and not results["right"].fell
    assert (results["wrong_scale"].fell, results["wrong_scale"].times) == ("check", {})
    assert "seed 0" in results["wrong_scale"].reason and results["wrong_scale"].reason.startswith("small: ")
    assert (results["exits"].fell, results["exits"].reason.partition(":")[0]) == ("check", "exit code 9")
    processes = len(list(tmp_path.glob("child-*.log")))
    again: dict[str, Result] = {}
    trial.run(requested, tmp_path, lambda r: again.update({NAMES[r.index]: r}), Pool(), "cpu")
    assert again == results and len(list(tmp_path.glob("child-*.log"))) == processes, (
        "what is answered is not run again"
    )


def test_the_next_batch_is_measured_by_the_process_that_waited_for_it(tmp_path: Path) -> None:
    results: list[Result] = []
    with Pool() as workers:
        for number, name in enumerate(("right", "slower")):
            trial.prepare(tmp_path, workers)
            assert len(list(tmp_path.glob("tasks-*"))) == number + 1
            trial.run([(Result(number), [case(name)])], tmp_path, results.append, workers, "cpu")
            assert len(list(tmp_path.glob("tasks-*"))) == number + 1, "and by no other one"
    assert [r.times.keys() for r in results] == [{"small"}] * 2


@pytest.mark.parametrize(("answer", "outcome"), [((2.5, ""), ("", 2.5)), ((None, "no counter"), ("bench", None))])
def test_an_energy_is_an_objective_and_a_candidate_without_one_falls(
    answer: tuple[float | None, str], outcome: tuple[str, float | None], tmp_path: Path
) -> None:
    class WithEnergy(Pool):
        """Times for real, and adds an energy to each answer."""

        def run(self, tasks: Any, program: Any, folder: Path, on_result: Any = None) -> Any:
            assert all(t.payload["energy"] for t in tasks)
            timed = super().run(
                [dataclasses.replace(t, payload={**t.payload, "energy": False}) for t in tasks], program, folder
            )
            return [dataclasses.replace(r, data={**(r.data or {}), "energy": answer}) for r in timed]

    results: list[Result] = []
    trial.run([(Result(0), [case("right")])], tmp_path, results.append, WithEnergy(), "cpu", energy=True)
    assert [(r.fell, r.facts.get("energy")) for r in results] == [outcome]


@pytest.mark.parametrize("measures", [True, False])
def test_processes_wait_while_a_batch_is_built_and_end_with_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measures: bool
) -> None:
    order: list[str] = []

    class Noted(Pool):
        def prepare(self, *_: object, **__: object) -> None:
            order.append("start")

        def close(self) -> None:
            order.append("close")

    def ran(*given: object, energy: bool) -> None:
        assert isinstance(given[-1], Noted) and energy
        order.append("measure")

    monkeypatch.setattr(trial, "run", ran)
    job = SimpleNamespace(workers=Noted(), say=print)
    grid = SimpleNamespace(space=SimpleNamespace(objectives=("time", "energy")))
    with candidates.Local(job, grid, tmp_path, measures) as local:  # type: ignore[arg-type]
        local.measure([], lambda _: None)
    assert order == (["start", "measure", "start", "close"] if measures else ["close"])


def test_a_search_for_energy_without_its_plugin_fails_before_any_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_loaded", {n: p for n, p in plugin._loaded.items() if n != "energy"})
    job = SimpleNamespace(workers=Pool(), say=print)
    grid = SimpleNamespace(space=SimpleNamespace(objectives=("energy",)))
    with pytest.raises(UsageError, match="energy: expected a feature or an extension that provides it"):
        candidates.Local(job, grid, tmp_path, True)  # type: ignore[arg-type]
    candidates.Local(job, grid, tmp_path, False)  # type: ignore[arg-type]
