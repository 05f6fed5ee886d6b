"""The child of bench: sets up the cases of a shape, and times them in turns in each mode."""

from __future__ import annotations

import functools
import random
import secrets
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashcore.measure.bench.interleave import Turns, Watch, distributions, release, sample, serve
from flashcore.measure.bench.message import CaseTimes, ShapeTimes
from flashcore.measure.bench.proof import Proof, Sets
from flashcore.measure.bench.racing import CALLS, Race
from flashcore.measure.bench.statistics import P90_SAMPLES, StopRule
from flashcore.measure.bench.timing import Timed, timer_for
from flashcore.measure.workers.journal import Journal, Task, answers, hung, raised
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, leave, synchronize
from flashcore.measure.workers.problem_file import load_problem
from flashcore.model.causes import Cause

#: Nanoseconds; the chip's own clock is too coarse to time less.
_SHORTEST_SPAN = 20_000
#: The label of the empty launch among the variants, whose names hold no such sign.
_EMPTY = "(empty)"


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the cases of one shape."""
    times = _timed(task, log)
    release(task.payload["device"])
    return times.to_json()


def _timed(task: Task, log: Journal) -> ShapeTimes:
    payload = task.payload
    device = payload["device"]
    rule = StopRule(**payload["rule"])
    cases = [Case.from_json(c) for c in payload["cases"]]
    problem = load_problem(cases[0].root, cases[0].problem_file)
    timer = timer_for(device)
    sets = Sets(timer, cases[0], problem, device)
    dice = random.Random(drawn := secrets.randbelow(1 << 32))
    proofs: dict[str, Proof] = {}
    failed: dict[str, Cause] = {}
    stuck = hung(answers(log.path.parent).values())  # on a shape before: one time limit is enough
    for case in cases:
        if case.variant in stuck:
            failed[case.variant] = stuck[case.variant]
            continue
        log.step(task.name, "set up", case.variant)
        try:
            caller = Caller(case, problem, device)
            proofs[case.variant] = Proof(caller, sets, *sets.rotation.prepare(timer, caller), dice)
        except Exception as error:
            if is_poisoned(device):
                raise
            failed[case.variant] = raised(error)
    ready = {variant: proof.timed for variant, proof in proofs.items()}
    empty = {_EMPTY: timer.empty()} if ready else {}
    watch = Watch(device)
    samples: dict[str, dict[str, list[float]]] = {}
    calls: dict[str, dict[str, list[float]]] = {}
    spent: dict[str, float] = defaultdict(float)
    for variant, proof in proofs.items():
        log.step(task.name, "new data", variant)
        proof.meet_new_data()
    rank, references = cases[0].rank_by, [c.variant for c in cases if c.is_reference]
    race = Race(rank, **payload["race"], references=references) if payload["race"] else None
    stopped: dict[str, list[str]] = defaultdict(list)
    for mode in sorted(payload["modes"], key=lambda mode: mode != rank):
        # The mode that ranks gets the full time, the others half of it, and twice the noise: for calls of many ms they
        # agree. Eager calls get a quarter of the time and five times the noise, which is the host's.
        mode_rule = rule
        if mode != rank:
            half = replace(rule, slow_seconds=rule.slow_seconds / 2, seconds=rule.seconds / 2, noise=2 * rule.noise)
            mode_rule = replace(half, seconds=half.seconds / 2, noise=5 * rule.noise) if mode == "eager" else half
        turns = Turns(watch, functools.partial(log.step, task.name, mode), spent, race)
        timed = ready if mode == "eager" else ready | empty
        samples[mode] = sample(timed, mode, mode_rule, turns, proofs, empty)
        short = race.short(mode) if race else set()
        for variant in short:
            stopped[variant].append(mode)
        if mode in ("isolated", "cold"):  # elsewhere a sample is the mean of many calls
            turns = Turns(watch, functools.partial(log.step, task.name, f"{mode} calls"), spent)
            most = {v: CALLS if v in short else P90_SAMPLES if v in payload["few"] else mode_rule.most for v in ready}
            calls[mode] = distributions(ready, mode, mode_rule, turns, most)
    variants: dict[str, CaseTimes] = {}
    for variant, proof in proofs.items():
        log.step(task.name, "own clock", variant)
        kernel_clock = _kernel_clock(proof.caller, sets.inputs[0], proof.timed)
        if void := proof.void({mode: times[variant] for mode, times in calls.items()}, timer.doubt):
            failed[variant] = void
            continue
        variants[variant] = CaseTimes(
            samples=_series(samples, variant),
            calls=_series(calls, variant),
            kernel_clock=kernel_clock,
            kernels=proof.timed.kernels,
            copies=proof.timed.copies,
            launches=proof.timed.launches,
            eager_calls=proof.timed.eager_calls,
            seconds=round(spent[variant], 3),
            proved=proof.turns,
            new=proof.new,
            stopped=stopped[variant],
        )
    return ShapeTimes(
        variants=variants,
        failed=failed,
        empty=_series(samples, _EMPTY),
        clock=timer.clock,
        doubt=timer.doubt,
        state=watch.seen,
        drawn=drawn,
    )


def _series(by_mode: Mapping[str, Mapping[str, Sequence[float]]], label: str) -> dict[str, list[float]]:
    return {mode: [round(x, 4) for x in times[label]] for mode, times in by_mode.items() if label in times}


def _kernel_clock(caller: Caller, inputs: Mapping[str, Any], timed: Timed) -> dict[str, float]:
    """What a kernel measures of itself, if its operator has the argument ``clocked`` and the output
    ``clocks``: int64 ``[blocks, 4]``, a block's SM cycles at start and stop and the chip's nanoseconds at
    start and stop, of all blocks or of some. NVML samples too slowly for that. Empty for all other
    operators, and for a kernel too short to tell."""
    if not {"clocked", "clocks"} <= {a.name for a in caller.case.arguments}:
        return {}
    outputs = caller.outputs(0)
    timed.back_to_back()  # at the clock frequency that this work settles at
    caller.call({**inputs, "clocked": 1}, outputs)
    synchronize(caller.device)
    rows = outputs["clocks"].cpu()
    # Integers up to here: the nanoseconds count from 1970 and do not fit a double.
    cycles, spans = (rows[:, 1] - rows[:, 0]).double(), (rows[:, 3] - rows[:, 2]).double()
    span = int(rows[:, 3].max() - rows[:, 2].min())
    if span < _SHORTEST_SPAN:
        return {}
    return {
        # Sums, since the nanoseconds of a short block are coarse.
        "kernel_sm_clock": float(cycles.sum() / spans.sum()) * 1e3,
        "kernel_span": span / 1e3,
        "kernel_block_span": float(spans.mean()) / 1e3,
        "kernel_block_cycles": float(cycles.mean()),
    }


if __name__ == "__main__":
    leave(serve(sys.argv[1:], perform))
