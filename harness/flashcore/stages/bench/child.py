"""The process that times calls: sets up the cases of a shape and times them in turns in each mode.

A task's payload has the ``cases``, the ``device``, the ``modes``, the ``rule`` by which a case has enough samples, and
the ``race``. The cases of bench are labeled by their variants. ``bench --against`` times builds of one variant: it
gives ``labels``, says which is the ``lead``, whose problem makes the inputs, and how many consecutive cases are
``together``: they fail together, and a sample of each has as many calls as the first one's. With ``only_samples`` there
are no single calls, no empty launches and no answers.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flashcore.machine.gpu_state import Watch
from flashcore.model.cause import Cause, Reason
from flashcore.model.causes import WRONG_TIMED_ANSWER
from flashcore.runner.hung_variants import hung_before
from flashcore.runner.inputs import make_inputs_once
from flashcore.runner.journal import Journal, Task, raised
from flashcore.runner.kernel_call import Caller, KernelCall, is_poisoned, serve, synchronize
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench.interleave import Turns, distributions, release, sample
from flashcore.stages.bench.message import CaseTimes, ShapeTimes
from flashcore.stages.bench.racing import Race
from flashcore.stages.bench.sets import Sets
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
    shape = _Shape(task, log)
    shape.set_up(choose)
    rank = shape.rank
    for mode in sorted(task.payload["modes"], key=lambda mode: mode != rank):
        shape.time(mode)
    return shape.times()


class _Shape:
    """The cases of one shape, by their labels.

    Attributes:
        rank: the mode that ranks.
        failed: label → why the case has no times, or void ones.
    """

    def __init__(self, task: Task, log: Journal) -> None:
        payload, self._task, self._log = task.payload, task.name, log
        self._device = payload["device"]
        cases = [KernelCall.from_json(c) for c in payload["cases"]]
        labels, together = payload.get("labels") or [c.variant for c in cases], payload.get("together", 1)
        self._only_samples = payload.get("only_samples", False)
        self._groups = {label: labels[i - i % together :][:together] for i, label in enumerate(labels)}
        lead = cases[payload.get("lead", 0)]
        self._problem = load_problem(lead.root, lead.problem_file)
        make_inputs_once(self._problem)  # the references need the timed inputs too
        self._timer = timer_for(self._device)
        self._sets = Sets(self._timer, lead, self._problem, self._device)
        # Variants that hung on an earlier shape: wait for a time limit only once.
        hung = hung_before(log.path.parent)
        self.failed: dict[str, Cause] = {label: hung[label] for label in labels if label in hung}
        self._cases = {label: case for label, case in zip(labels, cases, strict=True) if label not in hung}
        self.rank = lead.rank_by
        self._rule = StopRule(**payload["rule"])
        self._race = Race(self.rank, **payload["race"], references=[c.variant for c in cases if c.is_reference])
        self._watch = Watch(self._device)
        self._spent: dict[str, float] = defaultdict(float)
        self._callers: dict[str, Caller] = {}
        self._ready: dict[str, Timed] = {}
        self._samples: dict[str, dict[str, list[float]]] = {}
        self._calls: dict[str, dict[str, list[float]]] = {}
        self._stopped: dict[str, list[str]] = defaultdict(list)

    def _is_out(self, label: str) -> bool:
        return not self.failed.keys().isdisjoint(self._groups[label])

    @contextlib.contextmanager
    def _excluding(self, what: str, label: str) -> Iterator[None]:
        """A step whose error fails this case, and leaves the others' calls as they are."""
        self._log.step(self._task, what, label)
        try:
            yield
        except Exception as error:
            if is_poisoned(self._device):
                raise
            self.failed[label] = raised(error)

    def set_up(self, choose: Choose | None) -> None:
        """Loads the cases and captures their calls."""
        if choose:
            chosen, self._rule, self._race = choose([*self._cases.values()], self._sets)
            self._cases = {case.variant: case for case in chosen}
        for label, case in self._cases.items():
            if not self._is_out(label):
                with self._excluding("set up", label):
                    caller = self._callers[label] = Caller(case, self._problem, self._device)
                    first = self._ready.get(self._groups[label][0])
                    self._ready[label] = self._sets.prepare(self._timer, caller, first.launches if first else None)

    def time(self, mode: str) -> None:
        """Times all cases in one mode, in turns; at its end, checks what a call of each writes."""
        # The mode that ranks gets the full time. The others get half the time and twice the noise, since slow calls
        # take the same time in all modes. Eager calls get a quarter of the time and five times the noise: the host's.
        share, noise = (1, 1) if mode == self.rank else (4, 5) if mode == "eager" else (2, 2)
        slow = self._rule.slow_seconds / min(share, 2)
        rule = replace(
            self._rule, slow_seconds=slow, seconds=self._rule.seconds / share, noise=noise * self._rule.noise
        )
        turns = Turns(self._watch, partial(self._log.step, self._task), self._race, self._spent, self._timer.now)
        timed = {label: one for label, one in self._ready.items() if not self._is_out(label)}
        fillers = {} if mode == "eager" or self._only_samples else {_EMPTY: self._timer.empty}
        samples = self._samples[mode] = sample(timed | fillers, mode, rule, turns, fillers.keys())
        for label in self._race.short(mode):
            self._stopped[label].append(mode)
        if self._only_samples:
            return
        if mode in ("isolated", "cold"):  # in the other modes a sample is the mean of many calls
            most = {label: self._race.calls(mode, label, rule.most) for label in timed}
            self._calls[mode] = distributions(timed, mode, rule, turns, most)
        self._sets.renew()
        for label, one in timed.items():
            with self._excluding(mode, label):
                samples[label][-1], wrong = last_sample(mode, self._callers[label], self._sets, one)
                if wrong:
                    self.failed[label] = wrong

    def times(self) -> ShapeTimes:
        """All that was measured."""
        return ShapeTimes(
            variants={label: self._times(label, one) for label, one in self._ready.items()},
            failed=self.failed,
            empty=_series(self._samples, _EMPTY),
            clock=self._timer.clock,
            doubt=self._timer.doubt,
            state=self._watch.seen,
        )

    def _times(self, label: str, timed: Timed) -> CaseTimes:
        self._log.step(self._task, "kernel clock", label)
        is_clocked = not (self._only_samples or label in self.failed)
        return CaseTimes(
            samples=_series(self._samples, label),
            calls=_series(self._calls, label),
            kernel_clock=_kernel_clock(self._callers[label], self._sets.inputs[0], timed) if is_clocked else {},
            kernels=timed.kernels,
            copies=timed.copies,
            launches=timed.launches,
            eager_calls=timed.eager_calls,
            seconds=round(self._spent[label], 3),
            stopped=self._stopped[label],
        )


def last_sample(mode: str, caller: Caller, sets: Sets, timed: Timed) -> tuple[float, Reason | None]:
    """A sample of the mode into poisoned outputs, us per call, and what is wrong with its last call's answer.

    It shows that timed calls do their work. They use the same tensors again and again, so the times of a kernel that
    keeps its result, or of a launcher that stops after some calls, would look usual. After the other calls of a mode,
    other inputs are written and all outputs poisoned, untimed. What the last call then writes is compared with the
    reference, in check's tolerance classes. Calls before it are not looked at: work that is saved on purpose is what
    the extension judge finds.
    """
    i = (timed.calls_in(mode) - 1) % len(timed.outputs)
    is_reference = caller.case.is_reference

    def poison() -> None:
        for outputs in timed.outputs:
            outputs.poison()
        if is_reference and mode != "eager":  # whose graph writes to memory of its own
            for answer in caller.named(timed.answer(mode)).values():
                answer.fill_(float("nan") if answer.is_floating_point() else -1)

    timed.before = poison
    try:
        us: float = getattr(timed, mode)()
    finally:
        timed.before = None
    if is_reference:
        timed.outputs[i].update(caller.named(timed.answer(mode)))
    seed, wrong = sets.complaints(caller.case, i % len(sets.inputs), timed.outputs[i])
    return us, WRONG_TIMED_ANSWER(wrong[0], mode, seed) if wrong else None


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
