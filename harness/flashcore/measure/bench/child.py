"""The child of bench: sets up the cases of a shape, and times them in turns in each mode."""

from __future__ import annotations

import functools
import random
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashcore.measure.bench.interleave import Turns, Watch, distributions, release, sample, serve
from flashcore.measure.bench.proof import Proof, Sets
from flashcore.measure.bench.statistics import P90_SAMPLES, StopRule
from flashcore.measure.bench.timing import Timed, timer_for
from flashcore.measure.workers.journal import Journal, Task, answers, hung, raised
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, leave, synchronize
from flashcore.measure.workers.problem_file import load_problem
from flashcore.model.causes import Cause, as_json

#: Nanoseconds; the chip's own clock is too coarse to time less.
_SHORTEST_SPAN = 20_000
#: The label of the empty launch among the variants, whose names hold no such sign.
_EMPTY = "(empty)"


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the cases of one shape."""
    payload = task.payload
    device = payload["device"]
    rule = StopRule(**payload["rule"])
    cases = [Case.from_json(c) for c in payload["cases"]]
    problem = load_problem(cases[0].root, cases[0].problem_file)
    timer = timer_for(device)
    sets = Sets(timer, cases[0], problem, device)
    dice = random.Random(drawn := secrets.randbelow(1 << 32))
    ready: dict[str, Timed] = {}
    failed: dict[str, Cause] = {}
    callers: dict[str, Caller] = {}
    proofs: dict[str, Proof] = {}
    stuck = hung(answers(log.path.parent).values())  # on a shape before: one time limit is enough
    for case in cases:
        if case.variant in stuck:
            failed[case.variant] = stuck[case.variant]
            continue
        log.step(task.name, "set up", case.variant)
        try:
            caller = Caller(case, problem, device)
            callers[case.variant] = caller
            ready[case.variant], outputs = sets.rotation.prepare(timer, caller)
            proofs[case.variant] = Proof(caller, sets, outputs, ready[case.variant], dice)
        except Exception as error:
            if is_poisoned(device):
                raise
            failed[case.variant] = raised(error)
    empty = {_EMPTY: timer.empty()} if ready else {}
    watch = Watch(device)
    samples: dict[str, dict[str, list[float]]] = {v: {} for v in (*ready, *empty)}
    calls: dict[str, dict[str, list[float]]] = {v: {} for v in ready}
    turns = Turns(watch, lambda _: None)
    for variant, proof in proofs.items():
        log.step(task.name, "new data", variant)
        proof.meet_new_data()
    for mode in payload["modes"]:
        # The mode that ranks gets the full time, the others half of it, and twice the noise: for calls of many ms they
        # agree. Eager calls get a quarter of the time and five times the noise, which is the host's.
        own_rule = rule
        if mode != cases[0].rank_by:
            half = replace(rule, slow_seconds=rule.slow_seconds / 2, seconds=rule.seconds / 2, noise=2 * rule.noise)
            own_rule = replace(half, seconds=half.seconds / 2, noise=5 * rule.noise) if mode == "eager" else half
        turns = replace(turns, announce=functools.partial(_announce, log, task.name, mode))
        timed = ready if mode == "eager" else ready | empty
        for variant, values in sample(timed, mode, own_rule, turns, proofs, empty).items():
            samples[variant][mode] = values
        if mode in ("isolated", "cold"):  # elsewhere a sample is the mean of many calls
            turns = replace(turns, announce=functools.partial(_announce, log, task.name, f"{mode} calls"))
            most = {v: P90_SAMPLES if v in payload["few"] else own_rule.most for v in ready}
            for variant, values in distributions(ready, mode, own_rule, turns, most).items():
                calls[variant][mode] = values
    own_clocks = {}
    for variant, one in ready.items():
        log.step(task.name, "own clock", variant)
        own_clocks[variant] = _own_clock(callers[variant], sets.inputs[0], one)
        if void := proofs[variant].void(calls[variant], timer.doubt):
            failed[variant] = void
    data = {
        "variants": {
            v: {
                "own_clock": own_clocks[v],
                "samples": _rounded(samples[v]),
                "calls": _rounded(calls[v]),
                "kernels": t.kernels,
                "copies": t.copies,
                "launches": t.launches,
                "eager_calls": t.eager_calls,
                "seconds": round(turns.spent[v], 3),
                "proved": proofs[v].turns,
                "new": proofs[v].new,
            }
            for v, t in ready.items()
            if v not in failed
        },
        "empty": _rounded(samples.get(_EMPTY, {})),
        "failed": {variant: as_json(cause) for variant, cause in failed.items()},
        "clock": timer.clock,
        "state": watch.seen,
        "drawn": drawn,
        "doubt": timer.doubt,
    }
    ready.clear()
    empty.clear()
    callers.clear()
    proofs.clear()
    release(device)
    return data


def _rounded(series: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {mode: [round(x, 4) for x in values] for mode, values in series.items()}


def _own_clock(caller: Caller, inputs: Mapping[str, Any], timed: Timed) -> dict[str, float]:
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


def _announce(log: Journal, task: str, mode: str, variant: str) -> None:
    log.step(task, mode, variant)


if __name__ == "__main__":
    leave(serve(sys.argv[1:], perform))
