"""The search: every sampler on recorded outcomes, what reaches the GPU, and a search that is killed and resumed."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
import pytest

from extensions.tune.benchmarks.search import Recorded
from extensions.tune.tests.spaces import GRID, OUTCOMES, RECORDED
from flashcore.errors import UsageError
from flashcore_tune import results, search
from flashcore_tune.search import SAMPLERS, STATIC, Budget, Outcome, Search, ranked
from flashcore_tune.space import Grid

HEADER = {"suite": "toys", "space": {"shapes": ["small"]}}
BEST = ranked(OUTCOMES, "small")[0]


def silent(_: str) -> None:
    """Drops a message."""


class Counting(Recorded):
    """Counts what is built and what is measured."""

    def __init__(self) -> None:
        super().__init__(GRID, OUTCOMES, None)
        self.built: list[int] = []
        self.measured: list[int] = []

    def gate(self, points: Sequence[int]) -> dict[int, Outcome]:
        self.built.extend(points)
        return super().gate(points)

    def measure(self, passed: Mapping[int, Outcome]) -> dict[int, Outcome]:
        self.measured.extend(passed)
        return super().measure(passed)


@pytest.mark.parametrize("kind", [s for s in SAMPLERS if s != "gp"])  # whose model takes a second for each point
def test_every_sampler_finds_the_best_of_a_small_space(kind: str) -> None:
    evaluator, lines = Counting(), list[str]()
    study = optuna.create_study()
    found = Search(study, GRID, kind, first=[GRID.feasible[0]])
    found.run(evaluator, Budget(100), 4, lines.append)
    assert sorted(found.outcomes) == GRID.feasible and found.outcomes == OUTCOMES
    assert Counter(evaluator.built).most_common(1)[0][1] == 1 and evaluator.built[0] == GRID.feasible[0]
    assert sorted(evaluator.measured) == [i for i in GRID.feasible if OUTCOMES[i].rejected not in STATIC]
    assert len(lines) == len(GRID.feasible) and GRID.text(evaluator.built[0]) in lines[0]
    assert study.best_value == OUTCOMES[BEST].times["small"], "a wrong candidate has no value, however fast it is"


@pytest.mark.parametrize(("budget", "count"), [(Budget(5), 5), (Budget(seconds=1e-9), 0)])
def test_a_search_ends_with_its_budget(budget: Budget, count: int) -> None:
    found = Search(optuna.create_study(), GRID, "random")
    found.run(RECORDED, budget, 4, silent)
    assert found.evaluations == count


def test_each_shape_is_an_objective() -> None:
    study = optuna.create_study(directions=["minimize"] * 2)
    grid = Grid(dataclasses.replace(GRID.space, shapes=("small", "large")))
    both = dict(OUTCOMES)
    for index, outcome in OUTCOMES.items():
        if outcome.times:
            both[index] = dataclasses.replace(outcome, times={**outcome.times, "large": 10.0 - index / 10})
    Search(study, grid, "nsga2").run(Recorded(grid, both, None), Budget(100), 4, silent)
    assert len(study.best_trials) > 1 and all(len(t.values) == 2 for t in study.best_trials)


def test_a_frame_has_a_row_per_candidate_and_no_value_that_was_not_measured(tmp_path: Path) -> None:
    with search.opened(tmp_path / "toy-1", HEADER, False) as study:
        Search(study, GRID, "random").run(RECORDED, Budget(100), 4, silent)
        results.plot(study, "small", tmp_path / "plot.html")
    frame = results.frame(tmp_path / "toy-1").set_index("point")
    assert sorted(frame.index) == GRID.feasible
    for index, row in frame.iterrows():
        outcome, point = OUTCOMES[index], GRID.point(index)
        assert {axis: row[axis] for axis in point} == point and row["rejected"] == outcome.rejected
        assert (row["registers"] == point["ROWS"]) == bool(outcome.facts)
        assert row["missed"] == ", ".join(outcome.missed)
    assert frame["small [us]"].isna().sum() == sum(not o.times for o in OUTCOMES.values())
    page = (tmp_path / "plot.html").read_text(encoding="utf-8")
    assert "time at small" in page and "plotly" in page


def test_a_study_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a study of toy"):
        search.newest(tmp_path, "toy")
    with pytest.raises(UsageError, match="expected the folder of a study"):
        search.load(tmp_path)
    for name in ("toy-20260102T000000Z-0001", "toy-20260101T000000Z-0002", "toy_big-20260103T000000Z-0003"):
        with search.opened(tmp_path / name, HEADER, False):
            pass
    folder = search.newest(tmp_path, "toy")
    assert folder.name == "toy-20260102T000000Z-0001"
    again = search.opened(folder, HEADER, True)
    with search.opened(folder, HEADER, True), pytest.raises(UsageError, match="no process has locked"), again:
        pass
    other = search.opened(folder, {**HEADER, "suite": "others"}, True)
    with pytest.raises(UsageError, match=r"expected the same suite as now \(others\), found toys"), other:
        pass


class Killed(Recorded):
    """Logs what is measured; its process is killed within 4 ms after so many points."""

    def __init__(self, points: int, delay: float, log: Path) -> None:
        super().__init__(GRID, OUTCOMES, None)
        self.points, self.delay, self.log = points, delay, log

    def measure(self, passed: Mapping[int, Outcome]) -> dict[int, Outcome]:
        for index in passed:
            with self.log.open("ab") as log:
                log.write(bytes([index]))
        self.points -= len(passed)
        if self.points <= 0:
            threading.Timer(self.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            time.sleep(random.random() * self.delay)
        return super().measure(passed)


BATCH = 2
#: Evaluations of each sampler: the last points of a small space take NSGA-II long to propose.
COUNT = {"nsga2": 9, "grid": 100}


def searched(folder: Path, kind: str, evaluator: Killed) -> None:
    """Begins a study, or resumes the one that is there, and ends it unless it is killed."""
    with search.opened(folder, HEADER, folder.exists()) as study:
        Search(study, GRID, kind).run(evaluator, Budget(COUNT[kind]), BATCH, silent)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads: the child uses none of them
@pytest.mark.parametrize("kind", ["nsga2", "grid"])
def test_a_search_that_is_killed_loses_at_most_a_batch(kind: str, tmp_path: Path) -> None:
    """Killed by SIGKILL at random moments until it is done: no known outcome is lost or measured again."""
    rng, log, folder = random.Random(13), tmp_path / "log", tmp_path / "toy-1"
    known: dict[int, Outcome] = {}
    codes: list[int | None] = []
    while not codes or codes[-1] == -signal.SIGKILL:
        child = multiprocessing.get_context("fork").Process(
            target=searched, args=(folder, kind, Killed(rng.randint(1, 5), rng.uniform(0, 0.01), log))
        )
        child.start()
        child.join()
        before, known = known, search.outcomes(search.load(folder))
        assert before.items() <= known.items()
        codes.append(child.exitcode)
    assert codes.pop() == 0 and len(codes) >= 2
    assert all(OUTCOMES[i] == outcome for i, outcome in known.items())
    measured = log.read_bytes()
    passed = [i for i, o in known.items() if o.rejected not in STATIC]
    assert len(passed) >= min(COUNT[kind], 9) and set(passed) <= set(measured)
    assert len(measured) <= len(set(measured)) + BATCH * len(codes)
