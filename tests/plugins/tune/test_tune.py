"""The loop: every sampler on a replay, the funnel, what is measured once, and a search that is killed and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.plugins.tune import study, tune
from flashcore.plugins.tune.samplers import SAMPLERS, Exhaustive, Pace, Proposing, Sampler
from flashcore.plugins.tune.study import Result
from tests.plugins.tune.spaces import GRID, RECORDED, header

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
    with study.create(tmp_path, header(kind)) as own:
        tune.search(own, sampler(own, [GRID.feasible[0]]), evaluator, tune.Budget(100), lines.append, Pace(4))
    assert sorted(own.results) == GRID.feasible, "all points, as the budget allows it"
    assert Counter(evaluator.built).most_common(1)[0][1] == 1, "nothing is built twice"
    by_code = {r.code: r for r in RECORDED if r.fell not in ("build", "static")}
    assert len(evaluator.measured) == len(by_code), "one machine code is measured once, and what fell never"
    assert tune.best(own.results.values(), "small") is not None
    assert own.results[BEST.index].times == BEST.times
    twins = [r for r in own.results.values() if r.twin >= 0]
    assert len(twins) == 1 and twins[0].times == own.results[twins[0].twin].times
    assert len(lines) == len(GRID.feasible) and "best" in lines[-1]


@pytest.mark.parametrize(
    ("budget", "count"), [(tune.Budget(5), 5), (tune.Budget(until=1e9), 4), (tune.Budget(seconds=0.001), 4)]
)
def test_a_search_ends_with_its_budget(budget: tune.Budget, count: int, tmp_path: Path) -> None:
    with study.create(tmp_path, header("random")) as own:
        tune.search(own, sampler(own), tune.Replay(RECORDED), budget, lambda _: None, Pace(4))
    assert len(own.results) <= count and (own.results or budget.seconds)


def test_a_point_that_the_replayed_study_lacks_is_no_result(tmp_path: Path) -> None:
    with study.create(tmp_path, header("grid")) as own, pytest.raises(UsageError, match="found none of point"):
        tune.search(own, sampler(own), tune.Replay(RECORDED[1:]), tune.Budget(), lambda _: None, Pace())


class Telling(tune.Replay):
    """A replay that takes a byte of one pipe for each point, and writes what it measures into another as it begins."""

    def __init__(self, permits: int, pipe: int) -> None:
        super().__init__(RECORDED)
        self.permits, self.pipe = permits, pipe

    def measure(self, results: Sequence[Result], report: tune.Report) -> None:
        for result in results:
            os.read(self.permits, 1)
            os.write(self.pipe, bytes([result.index]))
            super().measure([result], report)


@pytest.mark.parametrize("kind", ["nsga2", "tpe", "random"])
def test_a_resumed_sampler_knows_the_results_and_asks_only_for_new_feasible_points(kind: str) -> None:
    recorded = {r.index: r for r in RECORDED[:6]}
    resumed = Proposing(header(kind), GRID, recorded, first=[RECORDED[0].index, RECORDED[9].index])
    assert len(resumed._study.get_trials(deepcopy=False)) == 6 + 1, "each result, and the point to begin with"
    asked = resumed.ask(len(GRID))
    assert asked[0] == RECORDED[9].index and sorted([*asked, *recorded]) == GRID.feasible and not resumed.ask(1)


#: The last points of a small space take a sampler long to come to.
COUNT = {"nsga2": 9, "grid": len(GRID.feasible)}


def searched(studies: Path, kind: str, permits: int, pipe: int) -> None:
    """Begins a study, or goes on with the one that is there, to its end."""
    folders = sorted(studies.glob("toy-*"))
    with study.resume(folders[0]) if folders else study.create(studies, header(kind)) as own:
        tune.search(own, sampler(own), Telling(permits, pipe), tune.Budget(COUNT[kind]), lambda _: None, Pace(3))


@pytest.mark.parametrize("kind", ["nsga2", "grid"])
def test_a_search_that_is_killed_loses_at_most_what_was_under_way(kind: str, tmp_path: Path) -> None:
    """Killed by SIGKILL at random moments until it is done: nothing that was kept is lost or measured again.

    A child may begin 1 to 4 points, so that it cannot end before it is killed, however slow this process is.
    """
    rng = random.Random(13)
    measured: list[int] = []
    kept: dict[int, Result] = {}
    kills = 0
    for _ in range(40):
        read, write = os.pipe()
        permits, permit = os.pipe()
        points = rng.randint(1, 4)
        os.write(permit, bytes(points))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child uses none of them
            child = os.fork()
        if child == 0:
            try:
                searched(tmp_path, kind, permits, write)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(0 if sys.exc_info()[0] is None else 1)
        os.close(write)
        for _ in range(points):
            measured += os.read(read, 1)
        time.sleep(rng.uniform(0, 0.004))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        while rest := os.read(read, 100):
            measured += rest
        for end in (read, permits, permit):
            os.close(end)
        (folder,) = tmp_path.glob("toy-*")
        before, kept = kept, study.read(folder)[1]
        assert before.items() <= kept.items(), "what was kept stays"
        if os.WIFEXITED(status):
            break
        kills += 1
    assert os.waitstatus_to_exitcode(status) == 0
    indices = [json.loads(line)["index"] for line in (folder / study.RESULTS).read_text().splitlines()[1:]]
    assert len(indices) == len(set(indices)) >= COUNT[kind], "every point once"
    assert kills >= 2
    assert len(measured) <= len(set(measured)) + kills, "at most one is measured again for each kill"
