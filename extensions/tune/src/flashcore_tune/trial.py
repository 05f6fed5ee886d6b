"""Checks candidates on the GPU at each shape, then times them briefly; one child process per batch.

Each candidate is a task: its result is written before the next begins, and a crash or hang affects no other. The check
uses the problem's first kind of input and few calls, and decides which candidates are timed; finalists are checked in
full. Calls are timed in the mode that ranks, and cold, since bench compares a call on new data with the cold time.

Run as ``python -m flashcore_tune.trial TASKFILE JOURNAL``, this module is that child.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashcore.measure.bench import case_times, proof
from flashcore.measure.bench import child as bench_child
from flashcore.measure.bench.statistics import StopRule
from flashcore.measure.check import child as check_child
from flashcore.measure.machine import python_process
from flashcore.measure.workers import journal, kernel_call
from flashcore.measure.workers.inputs import make_inputs_once
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.pool import Pool
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.program import Limits, Program
from flashcore.model import plugin
from flashcore.model.record import CaseOutcome
from flashcore_tune.study import Fell, Result

_COMMAND = python_process.child("flashcore_tune.trial")


SAMPLES = 25  # of each shape, in the mode that ranks there
_REPEATS = 3  # calls that must agree bit by bit
_TIME_LIMIT = 30.0  # seconds for a step before it counts as hung


def run(
    candidates: Sequence[tuple[Result, Sequence[Case]]],
    folder: Path,
    report: Callable[[Result], None],
    workers: Pool,
    device: str = "cuda",
    *,
    energy: bool = False,
) -> None:
    """Checks and times each candidate on its shapes, in order; resumable in ``folder``.

    Args:
        report: called with each result as soon as it is known.
        energy: whether to measure each candidate's energy at its first shape too.
        workers: the processes that share the candidates, including those that :func:`prepare` started.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    waiting = {f"{cases[0].variant}/trial": (result, cases) for result, cases in candidates}
    tasks = [journal.Task(name, _payload(cases, device) | {"energy": energy}) for name, (_, cases) in waiting.items()]

    def settle(answer: journal.Result) -> None:
        report(_measured(*waiting.pop(answer.name), answer))

    results = workers.run(tasks, _program(len(tasks)), folder, settle)
    for answer in (r for r in results if r.name in waiting):  # answered before this process began
        settle(answer)


def prepare(folder: Path, workers: Pool) -> None:
    """Starts the processes of a batch that is still being built."""
    workers.prepare(_program(1), folder)


def _program(batch: int) -> Program:
    # A short timing ranks within a few percent, and GPUs of one model differ by less: each takes the next candidate.
    limits = Limits(time_limit=_TIME_LIMIT, batch=batch)
    return Program(command=_COMMAND, limits=limits, chunk=1, refill=True)


def _payload(cases: Sequence[Case], device: str) -> dict[str, Any]:
    check = {"kinds": None, "repeats": _REPEATS, "opcheck": False, "device": device}
    rule = asdict(StopRule(least=SAMPLES, most=SAMPLES, slow_seconds=0.5, fewest=5))
    bench: dict[str, Any] = {"rule": rule, "race": {}, "device": device}
    modes = {c.shape: list(dict.fromkeys((c.rank_by, "cold"))) for c in cases}
    return {
        "device": device,
        "check": [{"case": c.to_json(), **check} for c in cases],
        "bench": [{"cases": [c.to_json()], "modes": modes[c.shape], **bench} for c in cases],
    }


def _measured(result: Result, cases: Sequence[Case], answer: journal.Result) -> Result:
    """A child's answer as the result of a candidate."""

    def rejected(fell: Fell, reason: str) -> Result:
        return dataclasses.replace(result, fell=fell, reason=reason)

    if answer.status != "ok" or answer.data is None:
        timing = answer.step.variant  # which the steps of bench name
        return rejected("bench" if timing else "check", answer.reason)
    data = answer.data
    if data["complaints"]:
        return rejected("check", data["complaints"][0])
    times: dict[str, float] = {}
    for case, timing_data in zip(cases, data["bench"], strict=True):
        (timed,) = case_times.settle(journal.Result(case.shape, "ok", data=timing_data), [case]).values()
        if isinstance(timed, CaseOutcome):
            return rejected("bench", f"{case.shape}: {timed.reason}")
        times[case.shape] = round(statistics.median(timed.times.samples[case.rank_by]), 4)
    facts = dict(result.facts)
    if energy := data.get("energy"):
        millijoules, note = energy
        if millijoules is None:
            return rejected("bench", f"{cases[0].shape}: energy: {note}")
        facts["energy"] = millijoules
    return dataclasses.replace(result, times=times, facts=facts, error=data["error"])


# --- the child ----------------------------------------------------------------------------------


def share() -> None:
    """Computes the reference answers of timed calls, which depend only on the shape, once per process."""
    setattr(proof, "References", functools.cache(getattr(proof, "References")))  # noqa: B009, B010


def perform(task: journal.Task, log: journal.Journal) -> dict[str, Any]:
    """Checks one candidate at each shape, and times it if it is right."""
    complaints: list[str] = []
    errors = []
    for payload in task.payload["check"]:
        case = Case.from_json(payload["case"])
        problem = load_problem(case.root, case.problem_file)
        make_inputs_once(problem)
        kinds = problem.KINDS[:1]
        checked = check_child.perform(journal.Task(task.name, {**payload, "kinds": kinds}), log)
        complaints += [f"{case.shape}: {text}" for text in checked["complaints"]]
        error, _ = checked["worst"].get("frobenius_error", (None, ""))
        if error is not None:
            errors.append(error)
    right = not complaints
    timed = [bench_child.perform(journal.Task(task.name, p), log) for p in task.payload["bench"] if right]
    energy = None
    if right and task.payload.get("energy"):
        measure = plugin.resolve("flashcore.features.energy.child:energy")
        energy = measure(task.payload["bench"][0]["cases"][0], task.payload["device"], log)
    return {"complaints": complaints, "error": max(errors, default=None), "bench": timed, "energy": energy}


if __name__ == "__main__":
    kernel_call.serve(perform, prepare=share)
