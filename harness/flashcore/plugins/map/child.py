"""The process that times a map's points: every variant's answer is checked, and only those that may win are timed.

A first look takes a few single calls of each variant. One that is far slower than the fastest variant keeps these
times; so does a reference that is far slower than the fastest reference. The others race as in ``bench --first 1``.

Run as ``python -m flashcore.plugins.map.child TASKFILE JOURNAL``, this module is that process.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flashcore.measure.bench.interleave import Turns, Watch, release, sample
from flashcore.measure.bench.message import CaseTimes, ShapeTimes
from flashcore.measure.bench.racing import Race
from flashcore.measure.bench.rotation import Rotation
from flashcore.measure.bench.statistics import StopRule
from flashcore.measure.bench.timing import Timed, timer_for
from flashcore.measure.workers.journal import Journal, Task, answers, hung, raised
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, leave, serve, synchronize
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.references import References
from flashcore.model.causes import Cause, WrongTimedAnswer

#: Calls of a first look, and the least samples of a case that races.
_LOOKS, _FEWEST = 3, 6
#: A case is not timed further if its fastest look takes this many times the fastest one, and this many us more.
_FAR, _FAR_US = 1.5, 5.0
_COVER_CLOCKS = 200_000  # the device waits while the host enqueues a call: about 100 us
_EMPTY = "(empty)"


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the cases of one point."""
    times = _timed(task, log)
    release(task.payload["device"])
    return times.to_json()


def _timed(task: Task, log: Journal) -> ShapeTimes:
    payload, device = task.payload, task.payload["device"]
    cases = [Case.from_json(c) for c in payload["cases"]]
    rule, mode = StopRule(**payload["rule"]), cases[0].rank_by
    problem = load_problem(cases[0].root, cases[0].problem_file)
    timer, watch = timer_for(device), Watch(device)
    rotation, expected = Rotation(timer, cases[0], problem, device), References()
    failed: dict[str, Cause] = {**hung(answers(log.path.parent).values())}
    callers: dict[str, Caller] = {}
    looks: dict[str, list[float]] = {}
    ready: dict[str, Timed] = {}

    def attempt(stage: str, cases: Collection[Case], work: Callable[[Case], None]) -> None:
        for case in cases:
            log.step(task.name, stage, case.variant)
            try:
                work(case)
            except Exception as error:
                if is_poisoned(device):
                    raise
                failed[case.variant] = raised(error)

    def look(case: Case) -> None:
        caller = Caller(case, problem, device)
        outputs = caller.outputs()
        caller.call(rotation.inputs[0], outputs)
        synchronize(device)
        answer = expected.get(case, problem, device, case.seeds[0], problem.KINDS[0])
        if wrong := answer.complaints(outputs):
            failed[case.variant] = WrongTimedAnswer(wrong[0], mode, 0, case.seeds[0])
            return
        looks[case.variant] = list(_looks(functools.partial(caller.call, rotation.inputs[0], outputs), device))
        callers[case.variant] = caller

    def capture(case: Case) -> None:
        ready[case.variant], _ = rotation.prepare(timer, callers[case.variant])

    attempt("first look", [c for c in cases if c.variant not in failed], look)
    race = None
    references = {c.variant for c in cases if c.is_reference}
    if payload["race"]:
        race = Race(mode, 1, {c.variant: () for c in cases}, {}, references)
        rule = replace(rule, fewest=_FEWEST)
    near = _near(looks, references) if race else looks
    attempt("set up", [c for c in cases if c.variant in near], capture)
    spent: dict[str, float] = defaultdict(float)
    empty = {_EMPTY: timer.empty()} if ready else {}
    turns = Turns(watch, functools.partial(log.step, task.name, mode), spent, race)
    samples = sample(ready | empty, mode, rule, turns, fillers=empty) if ready else {}
    stopped = race.short(mode) if race else set()
    variants = {
        name: CaseTimes(
            samples={mode: [round(us, 4) for us in samples.get(name, looked)]},
            calls={},
            kernel_clock={},
            kernels=timed.kernels if (timed := ready.get(name)) else None,
            copies=timed.copies if timed else 0,
            launches=timed.launches if timed else 1,
            eager_calls=1,
            seconds=round(spent[name], 3),
            proved={},
            new=None,
            stopped=[mode] if timed is None or name in stopped else [],
        )
        for name, looked in looks.items()
        if name not in failed
    }
    return ShapeTimes(
        variants=variants,
        failed=failed,
        empty={str(mode): samples[_EMPTY]} if samples else {},
        clock=timer.clock,
        doubt=timer.doubt,
        state=watch.seen,
        drawn=0,
    )


def _near(looks: Mapping[str, list[float]], references: Collection[str]) -> set[str]:
    """The variants, and the references, that may be the fastest of them."""
    near: set[str] = set()
    for group in ({v: min(us) for v, us in looks.items() if (v in references) is of} for of in (False, True)):
        limit = max(_FAR * min(group.values(), default=0.0), min(group.values(), default=0.0) + _FAR_US)
        near |= {name for name, us in group.items() if us <= limit}
    return near


def _looks(call: Callable[[], object], device: str) -> Iterator[float]:
    """us of a few single calls."""
    for _ in range(_LOOKS):
        if device == "cpu":
            began = time.perf_counter()
            call()
            yield (time.perf_counter() - began) * 1e6
            continue
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(_COVER_CLOCKS)  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        yield start.elapsed_time(end) * 1e3


if __name__ == "__main__":
    leave(serve(sys.argv[1:], perform))
