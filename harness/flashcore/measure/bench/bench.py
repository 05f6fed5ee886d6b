"""Is it faster, truly, and by how much? Times cases so that they can be compared.

One child process times a shape at a time. All its variants take turns, round by round, so that drift hits
all alike, in three regimes and eagerly (:mod:`flashcore.measure.bench.timing`). A variant that fails while it is set up
is left out and reported; one that crashes the process is named by the journal, left out, and the shape is timed again
without it. Ratios are of medians, with bootstrap intervals over rounds (:mod:`flashcore.measure.bench.statistics`).

This is the parent's side; :mod:`flashcore.measure.bench.child` is that process.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flashcore.measure.bench.statistics import StopRule, percentiles, summarize
from flashcore.measure.context import Context
from flashcore.measure.machine import python_process
from flashcore.measure.workers.journal import Result, Task
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.measure.workers.program import Program
from flashcore.model.catalogue import FACTS
from flashcore.model.cause_text import text
from flashcore.model.causes import (
    BelowEmptyKernel,
    BelowMedian,
    Cause,
    ClocksDisagree,
    Detail,
    HungBefore,
    LaunchesMissing,
    NoFormula,
    NoNvml,
    NotTimed,
    OneSample,
    OtherProcesses,
    OverReference,
    ReferenceNotTimed,
    TooFewCalls,
    Unanswered,
    VoidTiming,
    from_json,
)
from flashcore.model.intervals import ratio
from flashcore.model.record import CaseOutcome, CaseStatus, Fact, Source, StageResult
from flashcore.model.suite import REGIMES

#: The command line of the child.
TARGET = python_process.child("flashcore.measure.bench.child")
#: Seconds that calls of many ms may take in a mode, shared by the cases of a shape. Among 45, a call of 36 ms gets 15
#: samples: its time varies little, and a hundred samples would take as long as those of all the short calls.
_SLOW_SECONDS = 24.0
#: Cases of a shape that a mode's seconds are meant for; more get more.
_USUAL_CASES = 24
#: FLOP of a case that are timed as long as another takes to set up (H200), and how often that at most: slow calls get
#: fewer samples.
_FLOP_AS_SET_UP, _MOST_SET_UPS = 1e11, 4.0
#: By how much the two ways to time single calls may differ, beside 2 us: events around a call have a slope of 0.92 to
#: 0.96 and up to 1.3 us of their own (spins of known length). At the power limit the clock is higher where a GPU rests
#: in spacers: calls of 0.8 ms took up to 14 % longer by events (H200).
_APART = 0.25
#: No launch takes less than the empty one; a tenth is left to noise.
_LEAST_OF_EMPTY = 0.9


# --- the stage ----------------------------------------------------------------------------------


def program(context: Context) -> Program:
    """The child that times."""
    return Program(command=TARGET, limits=context.settings.bench.limits, refill=True)


def run(context: Context, cases: Sequence[Case], folder: Path) -> StageResult:
    """Times every case in child processes; resumable in ``folder``.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    chosen = context.settings.bench
    progress = context.progress("bench", len(cases))
    most = max(chosen.max_samples, chosen.samples)
    rule = StopRule(least=chosen.samples, most=most, noise=chosen.noise, seconds=chosen.seconds)
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.shape, []).append(case)
    measured: dict[str, Measured] = {}
    failed: dict[str, Failed] = {}
    attempts = dict.fromkeys(groups, 0)
    while attempts:
        tasks: dict[str, Task] = {}
        left: dict[str, list[Case]] = {}
        for shape, attempt in attempts.items():
            # Another attempt is another task, so that a continued run repeats the same steps.
            name = shape if attempt == 0 else f"{shape}~{attempt}"
            left[name] = [c for c in groups[shape] if c.name not in failed]
            payload = {
                "cases": [c.to_json() for c in left[name]],
                "device": context.device,
                "modes": list(chosen.modes),
                "rule": asdict(_shared(rule, len(left[name]))),
                "few": [c.variant for c in left[name] if c.variant in context.references],
            }
            tasks[name] = Task(name, payload, weight=_weight(left[name]))

        def tell(result: Result, left: Mapping[str, Sequence[Case]] = left) -> None:
            for outcome in settle(result, left[result.name]):
                progress(f"{outcome.case.name}: {outcome}")

        for result in context.workers.run(tasks.values(), program(context), folder, tell):
            shape = left[result.name][0].shape
            for outcome in settle(result, left[result.name]):
                if isinstance(outcome, Measured):
                    measured[outcome.case.name] = outcome
                else:
                    failed[outcome.case.name] = outcome
            if result.status == "failed" and any(c.name not in failed for c in left[result.name]):
                attempts[shape] += 1
            else:
                del attempts[shape]
    facts: list[Fact] = []
    for group in groups.values():
        facts += _group_facts(group, measured, context.suite.baseline)
    samples = {
        f"{case.name}/{mode}": tuple(values)
        for case in cases
        if case.name in measured
        for mode, values in measured[case.name].samples.items()
        if not measured[case.name].doubt(mode)
    }
    return StageResult(tuple(facts), tuple(_outcome(c, measured, failed) for c in cases), samples)


def _weight(cases: Sequence[Case]) -> int:
    """How long the cases of a shape take, roughly: of a case that takes long, so much is work, and else the set-up."""
    work = work_of(load_problem(cases[0].root, cases[0].problem_file), cases[0].params, cases[0].roof)
    return round(10 * len(cases) * (1 + min(work.get("flop", 0.0) / _FLOP_AS_SET_UP, _MOST_SET_UPS)))


def _shared(rule: StopRule, cases: int) -> StopRule:
    """The rule for so many cases of one shape: the more there are, the longer a mode may take, and the earlier slow
    calls may stop."""
    slow = min(rule.slow_seconds, _SLOW_SECONDS / max(cases, 1))
    return replace(rule, slow_seconds=slow, seconds=rule.seconds * max(1.0, cases / _USUAL_CASES))


@dataclass(frozen=True, slots=True)
class Measured:
    """What the child reported of one case."""

    case: Case
    samples: Mapping[str, Sequence[float]]
    launches: int
    eager_calls: int
    own_clock: Mapping[str, float]
    calls: Mapping[str, Sequence[float]]
    kernels: int | None
    clock: str
    empty: Mapping[str, float]
    state: Mapping[str, Any]
    seconds: float
    proved: Mapping[str, Sequence[int]]
    uncertain: float  # us by which the time of a single call may be off

    def doubt(self, mode: str) -> VoidTiming | None:
        """Why the times of a mode are void, though the calls did their work; ``None`` if they are valid."""
        if others := self.state.get("others"):
            return OtherProcesses(others)
        if mode in self.calls:
            p50, single = statistics.median(self.samples[mode]), statistics.median(self.calls[mode])
            if abs(p50 - single) > _APART * max(p50, single) + 4 * self.uncertain:
                return ClocksDisagree(p50, single)
        return None

    def __str__(self) -> str:
        return ", ".join(f"{mode} {statistics.median(v):.4g} µs" for mode, v in self.samples.items())


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a case was not timed."""

    case: Case
    cause: Cause
    seconds: float

    def __str__(self) -> str:
        return text(self.cause)


def settle(result: Result, cases: Sequence[Case]) -> Iterator[Measured | Failed]:
    """What a shape's result says about its cases; nothing about those that are to be timed once more."""
    if result.status == "failed" or result.data is None:
        # A failure before the first variant's turn is due to none of them, and would repeat.
        for case in [c for c in cases if c.variant == result.step.variant] or cases:
            yield Failed(case, result.cause or Unanswered(), result.seconds)
        return
    data = result.data
    for case in cases:
        reported = data["variants"].get(case.variant)
        if reported is None:
            cause = from_json(data["failed"].get(case.variant, {"cause": NotTimed.code}))
            yield Failed(case, cause if isinstance(cause, Cause) else NotTimed(), 0.0)
        else:
            kernels = reported["kernels"]
            if case.is_reference and kernels is not None:
                kernels += reported["copies"]  # torch's `copy_` is no kernel, and a launcher's plan names only kernels
            mine = (reported["launches"], reported["eager_calls"], reported["own_clock"], reported["calls"], kernels)
            empty = {mode: statistics.median(v) for mode, v in data["empty"].items()}
            proved = (reported.get("proved", {}), data.get("doubt", 0.5))
            one = Measured(
                case, reported["samples"], *mine, data["clock"], empty, data["state"], reported["seconds"], *proved
            )
            yield Failed(case, doubt, reported["seconds"]) if (doubt := void(one)) else one


def void(one: Measured) -> VoidTiming | None:
    """Why the timing is void; ``None`` if it is valid.

    Back to back a programmatic launch may rightly take less than an empty plain one.
    """
    if one.kernels is not None and one.kernels < max(one.case.launches, 1):
        return LaunchesMissing(one.kernels, one.case.launches)
    for mode in ("isolated", "cold"):
        values, empty = one.samples.get(mode), one.empty.get(mode)
        if (
            values
            and empty
            and one.kernels is not None
            and (p50 := statistics.median(values)) < _LEAST_OF_EMPTY * empty
        ):
            return BelowEmptyKernel(mode, p50, empty)
    return None


def _outcome(case: Case, measured: Mapping[str, Measured], failed: Mapping[str, Failed]) -> CaseOutcome:
    if case.name in measured:
        return CaseOutcome(case.variant, case.shape, "bench", "ok", None, measured[case.name].seconds)
    lost = failed[case.name]
    status: CaseStatus = "skipped" if isinstance(lost.cause, HungBefore) else "failed"
    return CaseOutcome(case.variant, case.shape, "bench", status, lost.cause, lost.seconds)


# --- facts --------------------------------------------------------------------------------------


def _group_facts(cases: Sequence[Case], measured: Mapping[str, Measured], baseline: str) -> Iterator[Fact]:
    """The facts of one shape's cases."""
    timed = [c for c in cases if c.name in measured]
    regime = cases[0].rank_by
    ranked = {
        c.variant: s
        for c in timed
        if (s := measured[c.name].samples.get(regime)) and not measured[c.name].doubt(regime)
    }
    peers = {c.variant: statistics.median(ranked[c.variant]) for c in timed if c.is_reference and c.variant in ranked}
    peer = min(peers, key=lambda v: peers[v]) if peers else None
    for case in timed:
        timing = measured[case.name]
        for mode, values in timing.samples.items():
            yield from _unless(timing.doubt(mode), _mode_facts(case, timing, mode, values))
        if "back_to_back" in timing.samples:
            yield _fact(case, "launches_per_sample", timing.launches, f"calls in one graph replay, {timing.clock}")
        doubt = timing.doubt(regime) if regime in timing.samples else None
        yield from _ratio_facts(case, "speedup_vs_baseline", ranked, baseline, doubt or ReferenceNotTimed(baseline))
        yield from _ratio_facts(case, "speedup_vs_peer", ranked, peer, doubt or ReferenceNotTimed())
        yield from _unless(doubt, [_tflops(case, ranked.get(case.variant, ()))])
        for name, value in timing.own_clock.items():
            clocked = _fact(case, name, value, "one call after a back-to-back sample", Source.KERNEL)
            yield from _unless(timing.doubt(""), [clocked])
        yield from _state_facts(case, timing.state)


def _unless(doubt: Cause | None, facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts, without values if there is a reason to doubt them."""
    for fact in facts:
        yield replace(fact, value=None, detail=doubt) if doubt else fact


def _fact(
    case: Case, name: str, value: float | int | str | None, detail: Detail | str = "", source: Source = Source.EVENTS
) -> Fact:
    return Fact(case.subject, name, value, FACTS[name].unit, source, detail)


def _mode_facts(case: Case, timing: Measured, mode: str, values: Sequence[float]) -> Iterator[Fact]:
    how = {
        "back_to_back": f"graph replay of {timing.launches} calls: its time over their number",
        "isolated": "by difference: spacers with calls less spacers alone",
        "cold": "by difference: L2 flushes and spacers with calls, less the same without",
        "eager": f"{timing.eager_calls} calls back to back",
    }[mode]
    note = f"{how}, {timing.clock}; {len(timing.proved.get(mode, ()))} timed answers right"
    summary = summarize(values)
    for name in ("p50", "mean"):
        yield _fact(case, f"{mode}_{name}", getattr(summary, name), note)
    yield _fact(case, f"{mode}_std", summary.std, note if summary.std is not None else OneSample())
    yield _fact(case, f"{mode}_samples", summary.count, note)
    if mode in timing.calls:
        calls = timing.calls[mode]
        for name, value in zip(("p90", "p99"), percentiles(calls), strict=True):
            if value is None:
                yield _fact(case, f"{mode}_{name}", None, TooFewCalls(len(calls)))
            elif value < summary.p50:  # two clocks that contradict each other: neither is a percentile of the other's
                yield _fact(case, f"{mode}_{name}", None, BelowMedian(len(calls), value))
            else:
                note = f"events around each of {len(calls)} calls, less the median of empty pairs"
                yield _fact(case, f"{mode}_{name}", value, note)
    if mode in REGIMES:
        floor = timing.empty.get(mode)
        how = "an empty kernel, timed in turn with these; not subtracted"
        yield _fact(case, f"{mode}_launch_floor", floor, NotTimed(mode) if floor is None else how)


def _ratio_facts(
    case: Case, name: str, ranked: Mapping[str, Sequence[float]], other: str | None, lacking: Cause
) -> Iterator[Fact]:
    names = (name, f"{name}_low", f"{name}_high")
    values: tuple[float | None, ...] = (None, None, None)
    detail: Detail = lacking
    if other is not None and other in ranked and case.variant in ranked:
        speedup = ratio(ranked[other], ranked[case.variant])
        values = (speedup.value, speedup.low, speedup.high)
        rounds = min(len(ranked[other]), len(ranked[case.variant]))
        detail = OverReference(other, case.rank_by, rounds)
    for n, value in zip(names, values, strict=True):
        yield _fact(case, n, value, detail)


def _tflops(case: Case, times: Sequence[float]) -> Fact:
    flop = work_of(load_problem(case.root, case.problem_file), case.params, case.roof).get("flop")
    if not flop or not times:
        return _fact(case, "tflops", None, NoFormula("flop") if times else NotTimed(case.rank_by))
    return _fact(case, "tflops", flop / statistics.median(times) / 1e6, f"work()['flop'] over {case.rank_by}_p50")


def _state_facts(case: Case, state: Mapping[str, Any]) -> Iterator[Fact]:
    """Clock, temperature and throttling while the shape was timed."""
    lacking = NoNvml(state.get("note", ""))
    note = f"{state.get('looks', 0)} looks between the rounds of this shape"
    clocks, degrees, reasons = (state.get(k) for k in ("sm_clock", "temperature", "throttle"))
    for name, value in (
        ("bench_sm_clock", statistics.median(clocks) if clocks else None),
        ("bench_temperature", max(degrees) if degrees else None),
        ("bench_other_processes", state.get("others")),
        ("throttle", None if reasons is None else ", ".join(reasons) or "none"),
    ):
        yield _fact(case, name, value, lacking if value is None else note, Source.NVML)
