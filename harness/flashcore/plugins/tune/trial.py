"""A candidate on the GPU: checked at each shape, then timed briefly; one child process for a batch of them.

Each candidate is a task of its own, so its result is written before the next begins, and a crash or hang affects no
other. The check uses the problem's first kind of input and few calls: it decides which candidates are timed. Finalists
are checked in full. Besides the regime that ranks, calls are timed cold, since bench compares a call on new data with
the cold time.

As a program (``python -m flashcore.plugins.tune.trial TASKFILE JOURNAL``) this module is that child.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from flashcore.measure.bench import case_times, proof
from flashcore.measure.bench import child as bench_child
from flashcore.measure.bench.statistics import StopRule
from flashcore.measure.check import child as check_child
from flashcore.measure.machine import python_process
from flashcore.measure.workers import journal, kernel_call
from flashcore.measure.workers.guarded import copied
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.pool import Pool
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.program import Limits, Program
from flashcore.model.record import CaseOutcome
from flashcore.plugins.tune.study import Result

_COMMAND = python_process.child("flashcore.plugins.tune.trial")


@dataclass(frozen=True, slots=True)
class Settings:
    """How briefly a candidate is checked and timed.

    Args:
        samples: of each shape, in the regime that ranks there.
        repeats: calls that must agree bit by bit.
        time_limit: seconds for a step before it counts as hung.
        device: ``cpu`` runs stand-ins.
    """

    samples: int = 25
    repeats: int = 3
    time_limit: float = 30.0
    device: str = "cuda"


def run(
    candidates: Sequence[tuple[Result, Sequence[Case]]],
    folder: Path,
    settings: Settings,
    report: Callable[[Result], None],
    workers: Pool,
) -> None:
    """Checks and times each candidate on its shapes, as they come; resumable in ``folder``.

    Args:
        report: called with each result as soon as there is one.
        workers: the processes that share the candidates, also those that :func:`prepare` started.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    waiting = {f"{cases[0].variant}/trial": (result, cases) for result, cases in candidates}
    tasks = [journal.Task(name, _payload(cases, settings)) for name, (_, cases) in waiting.items()]

    def settle(answer: journal.Result) -> None:
        report(_measured(*waiting.pop(answer.name), answer))

    results = workers.run(tasks, _program(settings, len(tasks)), folder, settle)
    for answer in (r for r in results if r.name in waiting):  # answered before this process began
        settle(answer)


def prepare(folder: Path, settings: Settings, workers: Pool) -> None:
    """Starts the processes of a batch that is still being built."""
    workers.prepare(_program(settings, 1), folder)


def _program(settings: Settings, batch: int) -> Program:
    # A short timing ranks within a few percent, and GPUs of one kind differ by less: each takes the next candidate.
    limits = Limits(time_limit=settings.time_limit, batch=batch)
    return Program(command=_COMMAND, limits=limits, chunk=1, refill=True)


def _payload(cases: Sequence[Case], settings: Settings) -> dict[str, Any]:
    rule = StopRule(least=settings.samples, most=settings.samples, slow_seconds=0.5, fewest=5)
    more = {"device": settings.device}
    modes = {c.shape: list(dict.fromkeys((c.rank_by, "cold"))) for c in cases}
    return {
        **more,
        "check": [
            {"case": c.to_json(), "kinds": None, "repeats": settings.repeats, "opcheck": False, **more} for c in cases
        ],
        "bench": [
            {"cases": [c.to_json()], "modes": modes[c.shape], "rule": asdict(rule), "few": [], "race": None, **more}
            for c in cases
        ],
    }


def _measured(result: Result, cases: Sequence[Case], answer: journal.Result) -> Result:
    """A child's answer as the result of a candidate."""
    data = answer.data or {"complaints": [], "bench": []}
    if answer.status != "ok":
        timing = answer.step.variant  # which the steps of bench name
        return dataclasses.replace(result, fell="bench" if timing else "check", reason=answer.reason)
    if data["complaints"]:
        return dataclasses.replace(result, fell="check", reason=data["complaints"][0])
    times: dict[str, float] = {}
    for case, timing_data in zip(cases, data["bench"], strict=True):
        (timed,) = case_times.settle(journal.Result(case.shape, "ok", data=timing_data), [case])
        if isinstance(timed, CaseOutcome):
            return dataclasses.replace(result, fell="bench", reason=f"{case.shape}: {timed.reason}")
        times[case.shape] = round(statistics.median(timed.times.samples[case.rank_by]), 4)
    return dataclasses.replace(result, times=times, error=data["error"])


# --- the child ----------------------------------------------------------------------------------


def share() -> None:
    """The references that answers of timed calls are compared with depend only on the shape: made once for all
    candidates of this process."""
    gc.freeze()  # a capture may collect garbage first: leave torch's own objects out of it
    setattr(proof, "References", functools.cache(getattr(proof, "References")))  # noqa: B009, B010


def _inputs_once(problem: ModuleType) -> None:
    """Makes the inputs of a seed once; each caller gets separate tensors."""
    import torch

    if hasattr(problem, "_make_inputs"):
        return
    make, made = problem.make_inputs, {}

    def copies(params: dict[str, Any], seed: int, device: str, kind: str = problem.KINDS[0]) -> dict[str, Any]:
        key = (tuple(sorted(params.items())), seed, device, kind)
        if key not in made:
            made[key] = make(dict(params), seed, device, kind)
        return {name: copied(x) if isinstance(x, torch.Tensor) else x for name, x in made[key].items()}

    setattr(problem, "_make_inputs", make)  # noqa: B010
    setattr(problem, "make_inputs", copies)  # noqa: B010


def perform(task: journal.Task, log: journal.Journal) -> dict[str, Any]:
    """Checks one candidate at each shape, and times it if it is right."""
    complaints: list[str] = []
    errors = []
    for payload in task.payload["check"]:
        case = Case.from_json(payload["case"])
        problem = load_problem(case.root, case.problem_file)
        _inputs_once(problem)
        kinds = problem.KINDS[:1]
        checked = check_child.perform(journal.Task(task.name, {**payload, "kinds": kinds}), log)
        complaints += [f"{case.shape}: {text}" for text in checked["complaints"]]
        error, _ = checked["worst"].get("frobenius_error", (None, ""))
        if error is not None:
            errors.append(error)
    right = not complaints
    timed = [bench_child.perform(journal.Task(task.name, p), log) for p in task.payload["bench"] if right]
    return {"complaints": complaints, "error": max(errors, default=None), "bench": timed}


if __name__ == "__main__":
    sys.exit(kernel_call.serve(sys.argv[1:], perform, prepare=share))
