"""Bench: is it faster, and by how much? Times cases so that they can be compared: the parent's side.

All cases of a shape run on one GPU (see :mod:`flashcore.runner.queue`), so no ratio compares two GPUs. One child
process (:mod:`flashcore.stages.bench.child`) times one shape at a time. All variants take turns, round by round, so
that drift affects them equally, in three timing modes and eagerly (:mod:`flashcore.stages.bench.timing`). A variant
whose setup fails is excluded and reported. If a variant crashes the process, the journal identifies it, and the shape
is timed again without it. Ratios are of medians, with bootstrap intervals over rounds
(:mod:`flashcore.model.intervals`).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, TypeVar

from flashcore.errors import RecordError
from flashcore.machine import python_process
from flashcore.machine.gpu_state import state_values
from flashcore.model.case import Case, TimeKey
from flashcore.model.catalogue import fact_of
from flashcore.model.cause import Cause, Detail, Reason
from flashcore.model.causes import (
    BELOW_EMPTY_KERNEL,
    BELOW_MEDIAN,
    CLOCKS_DISAGREE,
    LAUNCHES_MISSING,
    NO_FORMULA,
    NO_NVML,
    NO_REFERENCE_TIMED,
    NOT_RANKED,
    NOT_TIMED,
    ONE_SAMPLE,
    OTHER_PROCESSES,
    OTHER_ROUNDS,
    REFERENCE_NOT_TIMED,
    TOO_FEW_CALLS,
    UNANSWERED,
    FirstRound,
    OverReference,
)
from flashcore.model.groups import grouped
from flashcore.model.intervals import of_samples, ratio, tflops
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult, outcome_of
from flashcore.model.suite import TIMING_MODES
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.stages.bench.message import CaseTimes, ShapeTimes
from flashcore.stages.bench.racing import full_modes
from flashcore.stages.bench.statistics import StopRule, percentiles
from flashcore.stages.context import Context

_Item = TypeVar("_Item")
#: The child's command line.
TARGET = python_process.child("flashcore.stages.bench.child")
#: Seconds per mode for slow calls, divided among the cases of a shape. With 45 cases, a 36 ms call gets 15 samples. Its
#: time varies little, and 100 samples would take as long as all the short calls together.
_SLOW_SECONDS = 24.0
#: A mode's time limit is for this many cases per shape; it grows with more.
_USUAL_CASES = 24
#: Allowed relative difference between the two ways to time single calls, beyond 4 times the timer's uncertainty. Events
#: around spins of known length read 0.92 to 0.96 of it plus up to 1.3 us. At the power limit, spacers let the clock
#: rise: 0.8 ms calls took up to 14 % longer by events (H200).
_APART = 0.25
#: No launch can be faster than an empty one; 10 % is allowed for noise.
_LEAST_OF_EMPTY = 0.9


# --- the stage ----------------------------------------------------------------------------------


def prepare(context: Context) -> None:
    """Starts the first worker processes."""
    if context.cases("bench"):
        context.workers.prepare(_program(context), context.folder / "bench")


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Times every case in child processes; see :data:`flashcore.stages.gpu_stages.Run`.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    chosen = context.settings.bench
    progress = context.progress("bench", len(cases))
    most = max(chosen.max_samples, chosen.samples)
    rule = StopRule(least=chosen.samples, most=most, noise=chosen.noise, seconds=chosen.seconds)
    groups = grouped((case.name if context.settings.isolate else case.shape, case) for case in cases)
    gpu = context.gpu.name if context.gpu else None
    settled: dict[Case, TimedCase | CaseOutcome] = {}
    samples: dict[TimeKey, tuple[float, ...]] = {}
    for left in attempts(groups, lambda case: case.case, settled):
        tasks: list[Task] = []
        for name, group in left.items():
            full = full_modes(context.suite, gpu, group[0], chosen.modes)
            race = {
                "first": chosen.first,
                "full": {c.variant: full.get(c.variant, []) for c in group},
                "parents": {v.name: v.parent for v in context.suite.variants.values() if v.parent},
            }
            payload = {
                "cases": [c.to_json() for c in group],
                "device": context.device,
                "modes": list(chosen.modes),
                "rule": asdict(_shared(rule, len(group))),
                "race": race if chosen.first > 0 and not context.settings.variants else {},
            }
            tasks.append(Task(name, payload))
        if len(context.workers.places) > 1:  # long shapes first, so that no GPU waits long for another
            tasks.sort(key=lambda task: -len(left[task.name]) * (left[task.name][0].flop or 0.0))

        def tell(result: TaskResult, left: Mapping[str, Sequence[KernelCall]] = left) -> None:
            for case, outcome in settle(result, left[result.name]).items():
                progress(str(outcome) if isinstance(outcome, TimedCase) else f"{case}: {outcome.reason}")

        for result in context.workers.run(tasks, _program(context), context.folder / "bench", tell):
            try:
                settled.update(settle(result, left[result.name]))
                samples |= _samples(result, left[result.name])
            except RecordError as error:  # from an unfinished run: the next attempt times its cases
                reason = str(error).partition("\n")[0]
                context.say(f"bench: {result.name}: {reason}: its {len(left[result.name])} cases are timed again")
    measured = [one for case in cases if isinstance(one := settled[case.case], TimedCase)]
    facts: list[Fact] = []
    for timed in grouped((one.case.shape, one) for one in measured).values():
        facts += _group_facts(timed, context.suite.baseline)
    outcomes = [one.outcome if isinstance(one := settled[c.case], TimedCase) else one for c in cases]
    return StageResult(tuple(facts), tuple(outcomes), samples)


def _program(context: Context) -> Program:
    limits = context.limits(context.settings.bench.limits)
    return Program(command=context.resident or TARGET, limits=limits)


def attempts(
    groups: Mapping[str, Sequence[_Item]], key: Callable[[_Item], Hashable], done: Container[Hashable]
) -> Iterator[Mapping[str, Sequence[_Item]]]:
    """The groups to time, by their tasks' names: all of them, then again what is left of them, until all is done.

    The attempts are numbered, so that a resumed run repeats the same steps.

    Args:
        done: the keys of what is done; grows meanwhile.
    """
    for attempt in itertools.count():
        left = {name: [item for item in group if key(item) not in done] for name, group in groups.items()}
        if not any(left.values()):
            return
        yield {f"{name}~{attempt}" if attempt else name: items for name, items in left.items() if items}


def _shared(rule: StopRule, cases: int) -> StopRule:
    """The rule for this number of cases per shape: more cases get more time per mode, and slow calls stop earlier."""
    slow = min(rule.slow_seconds, _SLOW_SECONDS / max(cases, 1))
    return replace(rule, slow_seconds=slow, seconds=rule.seconds * max(1.0, cases / _USUAL_CASES))


@dataclass(frozen=True, slots=True)
class TimedCase:
    """A case's times, with its shape's."""

    case: KernelCall
    times: CaseTimes
    shape: ShapeTimes

    @property
    def outcome(self) -> CaseOutcome:
        """The case's outcome."""
        return outcome_of(self.case.case, "bench", None, self.times.seconds)

    def floor(self, mode: str) -> float | None:
        """Median time of an empty launch, us."""
        return statistics.median(self.shape.empty[mode]) if mode in self.shape.empty else None

    def void(self) -> Reason | None:
        """Why none of the case's times is valid; ``None`` if they are.

        Back to back, a programmatic launch may take less than an empty plain one.
        """
        kernels = self.times.kernels
        if kernels is None:
            return None
        if self.case.is_reference:
            kernels += self.times.copies  # torch's `copy_` may be a copy node instead of a kernel
        if kernels < max(self.case.launches, 1):
            return LAUNCHES_MISSING(self.case.launches or 1, kernels)
        for mode in ("isolated", "cold"):
            values, empty = self.times.samples.get(mode), self.floor(mode)
            if values and empty and (p50 := statistics.median(values)) < _LEAST_OF_EMPTY * empty:
                return BELOW_EMPTY_KERNEL(mode, p50, empty)
        return None

    def doubt(self, mode: str) -> Reason | None:
        """Why a mode's times are void although the calls did their work; ``None`` if they are valid."""
        if others := self.shape.state.get("others"):
            return OTHER_PROCESSES(others)
        if calls := self.times.calls.get(mode):
            p50, single = statistics.median(self.times.samples[mode]), statistics.median(calls)
            if abs(p50 - single) > _APART * max(p50, single) + 4 * self.shape.doubt:
                return CLOCKS_DISAGREE(p50, single)
        return None

    def __str__(self) -> str:
        medians = (f"{mode} {statistics.median(v):.4g} µs" for mode, v in self.times.samples.items())
        return f"{self.case.name}: {', '.join(medians)}"


def settle(result: TaskResult, cases: Sequence[KernelCall]) -> dict[Case, TimedCase | CaseOutcome]:
    """By case, its times, or its outcome if it has none; omits cases that must be timed again."""

    def lost(case: KernelCall, cause: Detail, seconds: float) -> CaseOutcome:
        cause = cause if isinstance(cause, Cause) else NOT_TIMED()
        return outcome_of(case.case, "bench", cause, seconds)

    if result.data is None:
        # A failure before the first variant's turn is not a variant's fault and would happen again.
        blamed = [c for c in cases if c.variant == result.step.variant] or cases
        return {case.case: lost(case, result.cause or UNANSWERED(), result.seconds) for case in blamed}
    shape = ShapeTimes.from_json(result.data)
    settled: dict[Case, TimedCase | CaseOutcome] = {}
    for case in cases:
        if times := shape.variants.get(case.variant):
            one = TimedCase(case, times, shape)
            void = shape.failed.get(case.variant) or one.void()
            settled[case.case] = lost(case, void, times.seconds) if void else one
        else:
            settled[case.case] = lost(case, shape.failed.get(case.variant, NOT_TIMED()), 0.0)
    return settled


def _samples(result: TaskResult, cases: Sequence[KernelCall]) -> dict[TimeKey, tuple[float, ...]]:
    """All samples of the cases, void ones too: readers of a record tell them apart by its facts."""
    times = ShapeTimes.from_json(result.data).variants if result.data is not None else {}
    return {
        (case.case, mode): tuple(values)
        for case in cases
        if case.variant in times
        for mode, values in times[case.variant].samples.items()
        if values
    }


# --- facts --------------------------------------------------------------------------------------


def _group_facts(timed: Sequence[TimedCase], baseline: str) -> Iterator[Fact]:
    """The facts of one shape's cases."""
    rank_by = timed[0].case.rank_by
    ranked = {one.case.variant: one for one in timed if one.times.samples.get(rank_by) and not one.doubt(rank_by)}
    medians = {variant: statistics.median(one.times.samples[rank_by]) for variant, one in ranked.items()}
    libraries = [variant for variant, one in ranked.items() if one.case.is_reference]
    fastest = min(libraries, key=medians.__getitem__, default=None)
    for one in timed:
        case, times = one.case, one.times
        for mode in times.samples:
            yield from _unless(one.doubt(mode), _mode_facts(one, mode))
        if "back_to_back" in times.samples:
            yield _fact(case, "launches_per_sample", times.launches, f"calls in one graph replay, {one.shape.clock}")
        doubt = one.doubt(rank_by) if rank_by in times.samples else None
        for name, other, lacking in (
            ("speedup_vs_baseline", ranked.get(baseline), REFERENCE_NOT_TIMED(baseline)),
            ("speedup_vs_reference", ranked.get(fastest or ""), NO_REFERENCE_TIMED()),
        ):
            yield from _ratio_facts(name, other, ranked.get(case.variant), case, doubt or lacking)
        rank = times.samples[rank_by] if case.variant in ranked else None
        rate = tflops(case.flop, rank) if case.flop and rank else None
        no_rate = NO_FORMULA("flop") if rank else NOT_TIMED(rank_by)
        yield from _unless(doubt, [_fact(case, "tflops", rate, f"work()['flop'] over {rank_by}_p50", no_rate)])
        for name, value in times.kernel_clock.items():
            clocked = _fact(case, name, value, "one call after a back-to-back sample", source=Source.KERNEL)
            yield from _unless(one.doubt(""), [clocked])
        yield from _state_facts(case, one.shape.state)


def _unless(doubt: Cause | None, facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts, without values if there is a doubt."""
    for fact in facts:
        yield replace(fact, value=None, detail=doubt) if doubt else fact


def _fact(
    case: KernelCall,
    name: str,
    value: float | int | str | None,
    note: Detail | str = "",
    lacking: Cause | None = None,
    source: Source = Source.EVENTS,
) -> Fact:
    """A fact; ``lacking`` is the cause of a missing value."""
    detail = lacking if value is None and lacking else note
    return fact_of(case.subject, name, value, source, detail)


def _mode_facts(one: TimedCase, mode: str) -> Iterator[Fact]:
    case, times = one.case, one.times
    how = {
        "back_to_back": f"graph replay of {times.launches} calls: its time over their number",
        "isolated": "by difference: spacers with calls minus spacers alone",
        "cold": "by difference: L2 flushes and spacers with calls, minus the same without calls",
        "eager": f"{times.eager_calls} calls back to back",
    }[mode]
    note = f"{how}, {one.shape.clock}; the last answer is right"
    samples = times.samples[mode]
    p50 = statistics.median(samples)
    stopped = mode in times.stopped
    for name, value in of_samples(samples).items():
        of_value = FirstRound() if stopped and name == "samples" else note
        yield _fact(case, f"{mode}_{name}", value, of_value, ONE_SAMPLE())
    if mode in times.calls:
        count = len(times.calls[mode])
        note = f"events around each of {count} calls, minus the median of empty pairs"
        for name, value in zip(("p90", "p99"), percentiles(times.calls[mode]), strict=True):
            lacking: Cause = NOT_RANKED() if stopped else TOO_FEW_CALLS(count)
            if value is not None and value < p50:
                # The two clocks contradict each other, so neither gives a percentile of the other's times.
                lacking, value = BELOW_MEDIAN(count, value), None
            yield _fact(case, f"{mode}_{name}", value, note, lacking)
    if mode in TIMING_MODES:
        how = "an empty kernel, timed in the same rounds; not subtracted"
        yield _fact(case, f"{mode}_launch_floor", one.floor(mode), how, NOT_TIMED(mode))


def _ratio_facts(
    name: str, other: TimedCase | None, one: TimedCase | None, case: KernelCall, lacking: Cause
) -> Iterator[Fact]:
    """The speedup of a case over another, and its interval if both were timed in the same rounds."""
    values: tuple[float | None, float | None, float | None] = None, None, None
    over: Detail | str = ""
    if one is not None and other is not None:
        before, after = other.times.samples[case.rank_by], one.times.samples[case.rank_by]
        over = OverReference(other.case.variant, case.rank_by, min(len(before), len(after)))
        if one.shape is other.shape:
            values = astuple(ratio(before, after))
        else:
            values, lacking = (statistics.median(before) / statistics.median(after), None, None), OTHER_ROUNDS()
    for ending, value in zip(("", "_low", "_high"), values, strict=True):
        yield _fact(case, name + ending, value, over, lacking)


def _state_facts(case: KernelCall, state: Mapping[str, Any]) -> Iterator[Fact]:
    """Clock, temperature and throttling while the shape was timed."""
    lacking = NO_NVML(state.get("note", ""))
    note = f"{state.get('looks', 0)} readings between this shape's rounds"
    for name, value in state_values(state).items():
        yield _fact(case, name, value, note, lacking, Source.NVML)
