"""The loop: every sampler on a replay, the funnel, what is measured once, and a search that is killed and goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from extensions.tune.tests.spaces import GRID, RECORDED, header
from flashcore.errors import UsageError
from flashcore_tune import study, tune
from flashcore_tune.samplers import SAMPLERS, Exhaustive, Pace, Proposing, Sampler
from flashcore_tune.study import Result

BEST = min((r for r in RECORDED if r.times), key=lambda r: r.times["small"])


class Counting(tune.Replay):
    """A replay that counts what reaches the GPU."""

    def __init__(self) -> None:
        super().__init__(RECORDED)
        self.built: list[int] = []
        self.measured: list[int] = []

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        self.built += indices
        return super().prepare(indices)

    def measure(self, results: Sequence[Result], report: tune.Report) -> None:
        self.measured += [r.index for r in results]
        super().measure(results, report)


def sampler(opened: study.Study, first: Sequence[int] = ()) -> Sampler:
    if opened.header.sampler == "grid":
        return Exhaustive(GRID, opened.results)
    return Proposing(opened.header, GRID, opened.results, first=first)


@pytest.mark.parametrize("kind", [s for s in SAMPLERS if s != "gp"])  # whose model takes a second for each point
def test_every_sampler_finds_the_best_of_a_small_space(kind: str, tmp_path: Path) -> None:
    evaluator = Counting()
    lines: list[str] = []
    with study.create(tmp_path, header(kind)) as opened:
        tune.search(opened, sampler(opened, [GRID.feasible[0]]), evaluator, tune.Budget(100), lines.append, Pace(4))
    assert sorted(opened.results) == GRID.feasible, "all points, as the budget allows it"
    assert Counter(evaluator.built).most_common(1)[0][1] == 1, "nothing is built twice"
    by_code = {r.code: r for r in RECORDED if r.fell not in ("build", "static")}
    assert len(evaluator.measured) == len(by_code), "one machine code is measured once, and what fell never"
    assert tune.best(opened.results.values(), "small") is not None
    assert opened.results[BEST.index].times == BEST.times
    twins = [r for r in opened.results.values() if r.twin >= 0]
    assert len(twins) == 1 and twins[0].times == opened.results[twins[0].twin].times
    assert len(lines) == len(GRID.feasible) and "best" in lines[-1]


@pytest.mark.parametrize(
    ("budget", "count"), [(tune.Budget(5), 5), (tune.Budget(until=1e9), 4), (tune.Budget(seconds=0.001), 4)]
)
def test_a_search_ends_with_its_budget(budget: tune.Budget, count: int, tmp_path: Path) -> None:
    with study.create(tmp_path, header("random")) as opened:
        tune.search(opened, sampler(opened), tune.Replay(RECORDED), budget, lambda _: None, Pace(4))
    assert len(opened.results) <= count and (opened.results or budget.seconds)


def test_a_point_that_the_replayed_study_lacks_is_no_result(tmp_path: Path) -> None:
    with study.create(tmp_path, header("grid")) as opened, pytest.raises(UsageError, match="found none of point"):
        tune.search(opened, sampler(opened), tune.Replay(RECORDED[1:]), tune.Budget(), lambda _: None, Pace())


@pytest.mark.parametrize("kind", ["nsga2", "tpe", "random"])
def test_a_resumed_sampler_knows_the_results_and_asks_only_for_new_feasible_points(kind: str) -> None:
    recorded = {r.index: r for r in RECORDED[:6]}
    resumed = Proposing(header(kind), GRID, recorded, first=[RECORDED[0].index, RECORDED[9].index])
    assert len(resumed._study.get_trials(deepcopy=False)) == 6 + 1, "each result, and the point to begin with"
    requested = resumed.ask(len(GRID))
    assert requested[0] == RECORDED[9].index and sorted([*requested, *recorded]) == GRID.feasible and not resumed.ask(1)


class Killed(tune.Replay):
    """A replay that logs what it measures, and whose process is killed within 4 ms after so many points."""

    def __init__(self, points: int, delay: float, log: Path) -> None:
        super().__init__(RECORDED)
        self.points, self.delay, self.log = points, delay, log

    def measure(self, results: Sequence[Result], report: tune.Report) -> None:
        for result in results:
            if self.points == 0:
                time.sleep(60)
            with self.log.open("ab") as log:
                log.write(bytes([result.index]))
            self.points -= 1
            if self.points == 0:
                threading.Timer(self.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            super().measure([result], report)


#: The last points of a small space take a sampler long to propose.
COUNT = {"nsga2": 9, "grid": len(GRID.feasible)}


def searched(studies: Path, kind: str, evaluator: Killed) -> None:
    """Begins a study, or resumes the one that is there, and ends it unless it is killed."""
    folders = sorted(studies.glob("toy-*"))
    with study.resume(folders[0]) if folders else study.create(studies, header(kind)) as opened:
        tune.search(opened, sampler(opened), evaluator, tune.Budget(COUNT[kind]), lambda _: None, Pace(3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads: the child uses none of them
@pytest.mark.parametrize("kind", ["nsga2", "grid"])
def test_a_search_that_is_killed_loses_at_most_what_was_under_way(kind: str, tmp_path: Path) -> None:
    """Killed by SIGKILL at random moments until it is done: no recorded result is lost or measured again."""
    rng, log = random.Random(13), tmp_path / "log"
    recorded: dict[int, Result] = {}
    codes: list[int | None] = []
    while not codes or codes[-1] == -signal.SIGKILL:
        evaluator = Killed(rng.randint(1, 4), rng.uniform(0, 0.004), log)
        child = multiprocessing.get_context("fork").Process(target=searched, args=(tmp_path, kind, evaluator))
        child.start()
        child.join()
        (folder,) = tmp_path.glob("toy-*")
        before, recorded = recorded, study.read(folder)[1]
        assert before.items() <= recorded.items(), "what was recorded stays"
        codes.append(child.exitcode)
    assert codes.pop() == 0 and len(codes) >= 2
    indices = [json.loads(line)["index"] for line in (folder / study.RESULTS).read_text().splitlines()[1:]]
    assert len(indices) == len(set(indices)) >= COUNT[kind], "every point once"
    measured = log.read_bytes()
    assert len(measured) <= len(set(measured)) + len(codes), "at most one is measured again for each kill"
