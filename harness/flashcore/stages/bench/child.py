"""The child process of bench: sets up the cases of a shape and times them in turns in each mode."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashcore.model.cause import Cause
from flashcore.runner.inputs import make_inputs_once
from flashcore.runner.journal import Journal, Task, hung_before, raised
from flashcore.runner.kernel_call import Caller, KernelCall, is_poisoned, serve, synchronize
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench.interleave import Turns, Watch, distributions, release, sample
from flashcore.stages.bench.message import CaseTimes, ShapeTimes
from flashcore.stages.bench.proof import Sets, last_sample
from flashcore.stages.bench.racing import Race
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import Timed, timer_for

#: The shortest span (ns) that ``globaltimer`` resolves well enough.
_SHORTEST_SPAN = 20_000
#: The empty launch's label; no variant's name contains parentheses.
_EMPTY = "(empty)"


#: Of these cases, looked at with the shape's sets, those to set up and time, when they have enough samples, and their
#: race.
Choose = Callable[[Sequence[KernelCall], Sets], tuple[Sequence[KernelCall], StopRule, Race]]


def perform(task: Task, log: Journal, choose: Choose | None = None) -> dict[str, Any]:
    """Times the cases of one shape, or those that ``choose`` leaves."""
    times = _timed(task, log, choose)
    release(task.payload["device"])
    return times.to_json()


def _timed(task: Task, log: Journal, choose: Choose | None) -> ShapeTimes:
    payload = task.payload
    device = payload["device"]
    rule = StopRule(**payload["rule"])
    cases = [KernelCall.from_json(c) for c in payload["cases"]]
    problem = load_problem(cases[0].root, cases[0].problem_file)
    make_inputs_once(problem)  # the references need the timed inputs too
    timer = timer_for(device)
    sets = Sets(timer, cases[0], problem, device)
    callers: dict[str, Caller] = {}
    ready: dict[str, Timed] = {}
    # Variants that hung on an earlier shape: wait for a time limit only once.
    hung = hung_before(log.path.parent)
    failed: dict[str, Cause] = {case.variant: hung[case.variant] for case in cases if case.variant in hung}
    left: Sequence[KernelCall] = [case for case in cases if case.variant not in failed]
    rank, references = cases[0].rank_by, [c.variant for c in cases if c.is_reference]
    race = Race(rank, **payload["race"], references=references)
    if choose:
        left, rule, race = choose(left, sets)

    @contextlib.contextmanager
    def excluding(what: str, variant: str) -> Iterator[None]:
        """A step whose error fails this variant, and leaves the others' calls as they are."""
        log.step(task.name, what, variant)
        try:
            yield
        except Exception as error:
            if is_poisoned(device):
                raise
            failed[variant] = raised(error)

    for case in left:
        with excluding("set up", case.variant):
            callers[case.variant] = Caller(case, problem, device)
            ready[case.variant] = sets.prepare(timer, callers[case.variant])
    watch = Watch(device)
    samples: dict[str, dict[str, list[float]]] = {}
    calls: dict[str, dict[str, list[float]]] = {}
    turns = Turns(watch, functools.partial(log.step, task.name), race)
    stopped: dict[str, list[str]] = defaultdict(list)
    for mode in sorted(payload["modes"], key=lambda mode: mode != rank):
        # The mode that ranks gets the full time. The others get half the time and twice the noise, since slow calls
        # take the same time in all modes. Eager calls get a quarter of the time and five times the noise: the host's.
        share, noise = (1, 1) if mode == rank else (4, 5) if mode == "eager" else (2, 2)
        slow = rule.slow_seconds / min(share, 2)
        mode_rule = replace(rule, slow_seconds=slow, seconds=rule.seconds / share, noise=noise * rule.noise)
        timed = {variant: one for variant, one in ready.items() if variant not in failed}
        fillers = {} if mode == "eager" else {_EMPTY: timer.empty}
        samples[mode] = sample(timed | fillers, mode, mode_rule, turns, fillers.keys())
        for variant in race.short(mode):
            stopped[variant].append(mode)
        if mode in ("isolated", "cold"):  # in the other modes a sample is the mean of many calls
            limits = {variant: race.calls(mode, variant, mode_rule.most) for variant in timed}
            calls[mode] = distributions(timed, mode, mode_rule, turns, limits)
        sets.renew()
        for variant, one in timed.items():
            with excluding(mode, variant):
                samples[mode][variant][-1], wrong = last_sample(mode, callers[variant], sets, one)
                if wrong:
                    failed[variant] = wrong
    variants: dict[str, CaseTimes] = {}
    for variant, one in ready.items():
        log.step(task.name, "kernel clock", variant)
        kernel_clock = {} if variant in failed else _kernel_clock(callers[variant], sets.inputs[0], one)
        variants[variant] = CaseTimes(
            samples=_series(samples, variant),
            calls=_series(calls, variant),
            kernel_clock=kernel_clock,
            kernels=one.kernels,
            copies=one.copies,
            launches=one.launches,
            eager_calls=one.eager_calls,
            seconds=round(turns.spent[variant], 3),
            stopped=stopped[variant],
        )
    return ShapeTimes(
        variants=variants,
        failed=failed,
        empty=_series(samples, _EMPTY),
        clock=timer.clock,
        doubt=timer.doubt,
        state=watch.seen,
    )


def _series(by_mode: Mapping[str, Mapping[str, Sequence[float]]], label: str) -> dict[str, list[float]]:
    return {mode: [round(x, 4) for x in times[label]] for mode, times in by_mode.items() if label in times}


def _kernel_clock(caller: Caller, inputs: Mapping[str, Any], timed: Timed) -> dict[str, float]:
    """Facts from the clocks that a kernel reads itself, since NVML samples too slowly.

    The operator needs the argument ``clocked`` and the output ``clocks``, int64 ``[blocks, 4]``: for all or some
    blocks, SM cycles at start and stop, and ``globaltimer`` nanoseconds at start and stop. Empty for other operators
    and for kernels shorter than :data:`_SHORTEST_SPAN`.
    """
    if not {"clocked", "clocks"} <= {a.name for a in caller.case.arguments}:
        return {}
    outputs = caller.outputs(0)
    timed.back_to_back()  # lets the clock settle under this work
    caller.call({**inputs, "clocked": 1}, outputs)
    synchronize(caller.device)
    rows = outputs["clocks"].cpu()
    # Subtract before converting: nanoseconds since 1970 do not fit a double.
    cycles, spans = (rows[:, 1] - rows[:, 0]).double(), (rows[:, 3] - rows[:, 2]).double()
    span = int(rows[:, 3].max() - rows[:, 2].min())
    if span < _SHORTEST_SPAN:
        return {}
    return {
        # Ratio of sums: a short block's nanoseconds are coarse.
        "kernel_sm_clock": float(cycles.sum() / spans.sum()) * 1e3,
        "kernel_span": span / 1e3,
        "kernel_block_span": float(spans.mean()) / 1e3,
        "kernel_block_cycles": float(cycles.mean()),
    }


if __name__ == "__main__":
    serve(perform)
