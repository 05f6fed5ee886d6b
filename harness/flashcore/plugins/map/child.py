"""The process that times a map's points: bench's, after a first look at every variant.

A first look is one checked call and a few timed ones. A variant far slower than the fastest right one keeps these
times, and so does a reference far slower than the fastest reference: they are timed no further. ``--first 0`` times
all.

Run as ``python -m flashcore.plugins.map.child TASKFILE JOURNAL``, this module is that process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flashcore.measure.bench import child as bench_child
from flashcore.measure.bench.message import CaseTimes
from flashcore.measure.workers.inputs import make_inputs_once
from flashcore.measure.workers.journal import Journal, Task, answers, hung
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, leave, serve, synchronize
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.references import References

#: Timed calls of a first look, and the least samples of a case that races.
_LOOKS, _FEWEST = 3, 6
#: A case is not timed further if its fastest look takes this many times the fastest one, and this many us more.
_FAR, _FAR_US = 1.5, 5.0
_COVER_CLOCKS = 200_000  # the device waits while the host enqueues a call: about 100 us

#: A case's name → whether it is a reference, and us of its looks.
Looks = dict[str, tuple[bool, list[float]]]


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the cases of one point."""
    payload = task.payload
    if not payload["race"]:
        return bench_child.perform(task, log)
    looks = _first_looks(task, log)
    dropped = {*far(looks)}
    near = [case for case in payload["cases"] if case["variant"] not in dropped]
    rule = {**payload["rule"], "fewest": _FEWEST}
    times = bench_child.perform(Task(task.name, {**payload, "cases": near, "rule": rule}), log)
    mode = payload["cases"][0]["rank_by"]
    for name in dropped:
        _, us = looks[name]
        times["variants"][name] = asdict(
            CaseTimes(
                samples={mode: us},
                calls={},
                kernel_clock={},
                kernels=None,
                copies=0,
                launches=1,
                eager_calls=1,
                seconds=sum(us) / 1e6,
                proved={},
                new=None,
                stopped=[mode],
            )
        )
    return times


def _first_looks(task: Task, log: Journal) -> Looks:
    """The looks of each right case; bench then reports those that fail."""
    device, expected = task.payload["device"], References()
    cases = [Case.from_json(case) for case in task.payload["cases"]]
    problem = load_problem(cases[0].root, cases[0].problem_file)
    make_inputs_once(problem, 1)
    seed = cases[0].seeds[0]
    inputs = problem.make_inputs(dict(cases[0].params), seed, device)
    hung_before = hung(answers(log.path.parent).values())
    looks: Looks = {}
    for case in (case for case in cases if case.variant not in hung_before):
        log.step(task.name, "first look", case.variant)
        try:
            caller = Caller(case, problem, device)
            outputs = caller.outputs()
            caller.call(inputs, outputs)
            if not expected.get(case, problem, device, seed, problem.KINDS[0]).complaints(outputs):
                looks[case.variant] = case.is_reference, [_look(caller, inputs, outputs) for _ in range(_LOOKS)]
        except Exception:
            if is_poisoned(device):
                raise
    return looks


def far(looks: Looks) -> Iterator[str]:
    """The variants, and the references, that cannot be the fastest of them."""
    for name, (is_reference, us) in looks.items():
        least = min(min(others) for role, others in looks.values() if role is is_reference)
        if min(us) > max(_FAR * least, least + _FAR_US):
            yield name


def _look(caller: Caller, inputs: Any, outputs: Any) -> float:
    """us of a call."""
    if caller.device == "cpu":
        began = time.perf_counter()
        caller.call(inputs, outputs)
        return (time.perf_counter() - began) * 1e6
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    synchronize(caller.device)
    torch.cuda._sleep(_COVER_CLOCKS)  # type: ignore[no-untyped-call]
    start.record()
    caller.call(inputs, outputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


if __name__ == "__main__":
    leave(serve(sys.argv[1:], perform))
