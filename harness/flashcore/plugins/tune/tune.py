"""The loop of a search: ask, build and gate, measure, record, tell, until the budget is spent.

A batch may be built on the CPUs while the one before is measured, so that the GPU waits only for the first one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from flashcore.errors import UsageError
from flashcore.model.progress import Step
from flashcore.plugins.tune.samplers import Sampler
from flashcore.plugins.tune.study import Result, Study

Told = Callable[[Result], None]


class Evaluator(Protocol):
    """Evaluates candidates; only the second half needs a GPU."""

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        """Builds and gates; a result that was not rejected has no times yet."""

    def measure(self, results: Sequence[Result], told: Told) -> None:
        """Checks and times those that were not rejected, and reports each as soon as it is known."""


class Replay:
    """Replaces builds and a GPU by the results of another study of the same space.

    Args:
        recorded: the outcome of every point that may be asked for.
    """

    def __init__(self, recorded: Iterable[Result]) -> None:
        self._recorded = {r.index: r for r in recorded}

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        if missing := [i for i in indices if i not in self._recorded]:
            raise UsageError(f"--replay: expected a study of every point, found none of point {missing[0]}")
        found = [self._recorded[i] for i in indices]
        blank: dict[str, Any] = {"fell": "", "reason": "", "times": {}, "error": None, "twin": -1}
        return [r if r.fell in ("build", "static") else dataclasses.replace(r, **blank) for r in found]

    def measure(self, results: Sequence[Result], told: Told) -> None:
        for r in results:
            told(self._recorded[r.index])


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends.

    Args:
        evaluations: candidates measured on the GPU, including those of the study so far. Candidates rejected before
            cost only CPU time and do not count.
        seconds: since the study began, its pauses left out.
        until: time of the first shape, in us, that is good enough.
    """

    evaluations: int | None = None
    seconds: float | None = None
    until: float | None = None

    def spent(self, study: Study, seconds: float) -> bool:
        """Whether the search is over."""
        top = best(study.results.values(), shape := study.header.space.shapes[0])
        return (
            study.measured >= (self.evaluations or math.inf)
            or seconds >= (self.seconds or math.inf)
            or (top is not None and top.times[shape] <= (self.until or 0.0))
        )


def search(
    study: Study, sampler: Sampler, evaluator: Evaluator, budget: Budget, say: Callable[[str], None], *, batch: int = 1,
    ahead: bool = False,
) -> None:  # fmt: skip
    """Searches until the budget is spent or no point is left. Interrupted, it can go on from the study.

    Args:
        batch: candidates that are built, and measured by one process.
        ahead: ask for and build the next batch while one is measured: the GPU never waits, and the sampler is one batch
            behind.
    """
    before = max((r.seconds for r in study.results.values()), default=0.0)
    began = time.monotonic()

    def elapsed() -> float:
        return before + time.monotonic() - began

    pool = ThreadPoolExecutor(max_workers=1)

    def asked_for(under_way: int = 0) -> Future[list[Result]]:
        room = (budget.evaluations or math.inf) - study.measured - under_way
        return pool.submit(evaluator.prepare, sampler.ask(int(min(batch, max(room, 0)))))

    def told(result: Result) -> None:
        kept = dataclasses.replace(result, seconds=round(elapsed(), 3))
        study.keep(kept)
        sampler.tell(kept)
        say(_line(study, kept, budget))

    try:
        following = asked_for()
        while not budget.spent(study, elapsed()) and (found := following.result()):
            if ahead:
                following = asked_for(len(found))
            _measure(found, evaluator, study, told)
            if not ahead or not following.result():
                following = asked_for()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what is being built ends with the evaluator


def _measure(found: Sequence[Result], evaluator: Evaluator, study: Study, told: Told) -> None:
    """Rejected candidates are reported as they are; of the others each machine code is measured only once."""
    known = {r.code: r for r in study.results.values() if r.code and r.measured}
    fresh: dict[str, Result] = {}
    twins: list[Result] = []
    for result in found:
        if result.fell:
            told(result)
        elif result.code and (result.code in known or result.code in fresh):
            twins.append(result)
        else:
            fresh[result.code or f"#{result.index}"] = result

    def measured(result: Result) -> None:
        known[result.code] = result
        told(result)

    if fresh:
        evaluator.measure(list(fresh.values()), measured)
    for result in twins:
        twin = known[result.code]
        same: dict[str, Any] = {"fell": twin.fell, "reason": twin.reason, "times": twin.times, "error": twin.error}
        told(dataclasses.replace(result, twin=twin.index, **same))


def best(results: Iterable[Result], shape: str) -> Result | None:
    """The fastest at a shape; of several equally fast the first that was measured."""
    return min((r for r in results if shape in r.times), key=lambda r: r.times[shape], default=None)


def _line(study: Study, result: Result, budget: Budget) -> str:
    shape = study.header.space.shapes[0]
    own = f"{result.times[shape]:.4g} µs" if shape in result.times else "built"
    if result.fell:
        own = f"{result.fell}: {result.reason.partition(chr(10))[0][:100]}"
    top = best(study.results.values(), shape)
    said = f"tune {len(study.results)}: point {result.index} {own}" + (
        f"; best {top.times[shape]:.4g} µs, point {top.index}" if top else ""
    )
    return Step(said, study.measured, budget.evaluations) if budget.evaluations else said
