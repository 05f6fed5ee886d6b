"""The loop of a search: propose, build and gate, measure and record, until the budget is spent."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from flashcore.errors import UsageError
from flashcore.model.progress import Step
from flashcore_tune.samplers import Pace, Sampler
from flashcore_tune.study import STATIC, Result, Study
from flashcore_tune.summary import first_line

if TYPE_CHECKING:
    from flashcore_tune.candidates import Local

Report = Callable[[Result], None]
#: The fields of a result that a measurement sets, before it.
OUTCOME: dict[str, Any] = {"fell": "", "reason": "", "times": {}, "error": None}


class Replay:
    """Replaces builds and a GPU by the results of another study of the same space.

    Args:
        recorded: the results of all points that may be proposed.
    """

    def __init__(self, recorded: Iterable[Result]) -> None:
        self._recorded = {r.index: r for r in recorded}

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        """The results before the measurement: candidates that the gates let pass have no times."""
        if missing := [i for i in indices if i not in self._recorded]:
            raise UsageError(f"--replay: expected a study of every point, found none of point {missing[0]}")
        results = [self._recorded[i] for i in indices]
        return [r if r.fell in STATIC else dataclasses.replace(r, twin=-1, **OUTCOME) for r in results]

    def measure(self, results: Sequence[Result], report: Report) -> None:
        """Reports the recorded result of each."""
        for r in results:
            report(self._recorded[r.index])


class Budget(NamedTuple):
    """When a search ends.

    Args:
        evaluations: candidates measured on the GPU, including those of the study so far. Candidates that were rejected
            earlier cost only CPU time and do not count.
        seconds: since the study began, without its pauses.
        until: time of the first shape, in us, that is good enough.
    """

    evaluations: float = math.inf
    seconds: float = math.inf
    until: float = 0.0

    def spent(self, study: Study, seconds: float) -> bool:
        """Whether the search is over."""
        top = best(study.results.values(), shape := study.header.space.shapes[0])
        return (
            study.measured >= self.evaluations
            or seconds >= self.seconds
            or (top is not None and top.times[shape] <= self.until)
        )


def search(
    study: Study, sampler: Sampler, evaluator: Local | Replay, budget: Budget, say: Callable[[str], None], pace: Pace
) -> None:
    """Searches until the budget is spent or no point is left. An interrupted search can be resumed from the study."""
    earlier = max((r.seconds for r in study.results.values()), default=0.0)
    began = time.monotonic()

    def elapsed() -> float:
        return earlier + time.monotonic() - began

    pool = ThreadPoolExecutor(max_workers=1)

    def build_next(under_way: int = 0) -> Future[list[Result]]:
        room = budget.evaluations - study.measured - under_way
        return pool.submit(evaluator.prepare, sampler.ask(int(min(pace.batch, max(room, 0)))))

    def record(result: Result) -> None:
        result = dataclasses.replace(result, seconds=round(elapsed(), 3))
        study.record(result)
        sampler.tell(result)
        say(_progress(study, result, budget))

    try:
        following = build_next()
        while not budget.spent(study, elapsed()) and (batch := following.result()):
            if pace.ahead:
                following = build_next(len(batch))
            _measure(batch, evaluator, study, record)
            if not pace.ahead or not following.result():
                following = build_next()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # the evaluator ends the current build


def _measure(batch: Sequence[Result], evaluator: Local | Replay, study: Study, report: Report) -> None:
    """Reports rejected candidates, and measures each machine code of the others once."""
    by_code = {r.code or r.index: r for r in study.results.values() if r.measured}
    for result in batch:
        if result.fell:
            report(result)
    built = [r for r in batch if not r.fell]
    fresh = [r for r in built if by_code.setdefault(r.code or r.index, r) is r]
    if fresh:
        evaluator.measure(fresh, report)
    for result in (r for r in built if r not in fresh):
        first = study.results[by_code[result.code].index]
        outcome = {name: getattr(first, name) for name in OUTCOME}
        report(dataclasses.replace(result, twin=first.index, **outcome))


def best(results: Iterable[Result], shape: str) -> Result | None:
    """The fastest at a shape; of several equally fast the first that was measured."""
    return min((r for r in results if shape in r.times), key=lambda r: r.times[shape], default=None)


def _progress(study: Study, result: Result, budget: Budget) -> str:
    shape = study.header.space.shapes[0]
    outcome = f"{result.times[shape]:.4g} µs" if shape in result.times else "built"
    if result.fell:
        outcome = f"{result.fell}: {first_line(result.reason)[:100]}"
    text = f"tune {len(study.results)}: point {result.index} {outcome}"
    if top := best(study.results.values(), shape):
        text += f"; best {top.times[shape]:.4g} µs, point {top.index}"
    return Step(text, study.measured, int(budget.evaluations)) if budget.evaluations < math.inf else text
