"""Is it faster, truly, and by how much? Times cases so that they can be compared.

One child process times a shape at a time. All its variants take turns, round by round, so that drift hits
all alike, in three modes (:mod:`flashcore.stages.bench.timing`). A variant that fails while it is made
ready is left out and told; one that takes the process along is named by the journal, left out, and the
shape is timed again without it. Ratios are of medians, with bootstrap intervals over rounds
(:mod:`flashcore.stages.bench.statistics`).

As a program (``python -m flashcore.stages.bench.bench TASKFILE JOURNAL``) this module is that child.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flashcore.machine import python_process
from flashcore.model.catalogue import FACTS
from flashcore.model.intervals import ratio
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult
from flashcore.stages.bench.interleave import Watch, release, sample, serve
from flashcore.stages.bench.statistics import P99_SAMPLES, StopRule, Summary, summarize
from flashcore.stages.bench.timing import MODES, Timed, timer_for
from flashcore.worker import journal, supervisor
from flashcore.worker.kernel_call import Caller, Case, is_poisoned, load_problem, synchronize

#: The module that the child runs.
TARGET = "flashcore.stages.bench.bench"
#: Seconds that calls of many ms may take in a mode, shared by the cases of a shape. Among 45, a call of 36 ms gets
#: 15 samples: it is steady, and a hundred would take as long as those of all the quick calls.
_SLOW_SECONDS = 24.0
#: Nanoseconds; the chip's own clock ticks too coarsely to time less.
_SHORTEST_SPAN = 20_000


# --- the stage ----------------------------------------------------------------------------------


def run(
    cases: Sequence[Case],
    folder: Path,
    *,
    baseline: str,
    min_samples: int = 100,
    max_samples: int = P99_SAMPLES,
    seconds: float = 2.0,
    noise: float = 0.002,
    time_limit: float = 60.0,
    modes: Sequence[str] = MODES,
    progress: Callable[[str], None] = lambda _: None,
    device: str = "cuda",
) -> StageResult:
    """Times every case in child processes; resumable in ``folder``.

    Args:
        baseline: the variant that the others are compared with.
        min_samples: samples of each case and mode; calls of many ms may get fewer, and say so. The more cases a
            shape has, the less time slow calls get.
        max_samples: at most so many (at least ``min_samples``).
        seconds: for each shape and mode, after which no more than ``min_samples`` are taken.
        noise: relative noise of the median at which sampling may end.
        time_limit: seconds for making a case ready, or for a sample, before it counts as hung.
        modes: of ``warm``, ``cold``, ``eager``.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    rule = StopRule(least=min_samples, most=max(max_samples, min_samples), noise=noise, seconds=seconds)
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.shape, []).append(case)
    measured: dict[str, _Measured] = {}
    failed: dict[str, _Failed] = {}
    todo = dict.fromkeys(groups, 0)

    def command(task_file: Path, journal_file: Path) -> list[str]:
        return python_process.command(TARGET, str(task_file), str(journal_file))

    while todo:
        tasks: dict[str, supervisor.Task] = {}
        left: dict[str, list[Case]] = {}
        for shape, attempt in todo.items():
            # Another attempt is another task, so that a run that is continued goes the same way again.
            name = shape if attempt == 0 else f"{shape}~{attempt}"
            left[name] = [c for c in groups[shape] if c.name not in failed]
            payload = {
                "cases": [c.to_json() for c in left[name]],
                "device": device,
                "modes": list(modes),
                "rule": asdict(_shared(rule, len(left[name]))),
            }
            tasks[name] = supervisor.Task(name, payload)

        def tell(result: supervisor.Result, left: Mapping[str, Sequence[Case]] = left) -> None:
            for outcome in _settle(result, left[result.name]):
                progress(f"{outcome.case.name}: {outcome}")

        results = supervisor.supervise(tasks.values(), folder, command, time_limit=time_limit, on_progress=tell)
        for result in results:
            shape = left[result.name][0].shape
            for outcome in _settle(result, left[result.name]):
                if isinstance(outcome, _Measured):
                    measured[outcome.case.name] = outcome
                else:
                    failed[outcome.case.name] = outcome
            if result.status == "failed" and any(c.name not in failed for c in left[result.name]):
                todo[shape] += 1
            else:
                del todo[shape]
    facts: list[Fact] = []
    for group in groups.values():
        facts += _group_facts(group, measured, baseline)
    samples = {
        f"{case.name}/{mode}": tuple(values)
        for case in cases
        if case.name in measured
        for mode, values in measured[case.name].samples.items()
    }
    return StageResult(tuple(facts), tuple(_outcome(c, measured, failed) for c in cases), samples)


def _shared(rule: StopRule, cases: int) -> StopRule:
    """The rule for so many cases of one shape: the more there are, the earlier slow calls may stop."""
    return replace(rule, slow_seconds=min(rule.slow_seconds, _SLOW_SECONDS / max(cases, 1)))


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the child told of one case."""

    case: Case
    samples: Mapping[str, Sequence[float]]
    launches: int
    eager_calls: int
    own_clock: Mapping[str, float]
    clock: str
    state: Mapping[str, Any]
    seconds: float

    def __str__(self) -> str:
        return ", ".join(f"{mode} {statistics.median(v):.4g} us" for mode, v in self.samples.items())


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a case was not timed."""

    case: Case
    reason: str
    seconds: float

    def __str__(self) -> str:
        return self.reason


def _settle(result: supervisor.Result, cases: Sequence[Case]) -> Iterator[_Measured | _Failed]:
    """What a shape's result says about its cases; nothing about those that are to be timed once more."""
    if result.status == "failed" or result.data is None:
        culprit = result.step.partition(" ")[0]
        # Before the first variant's turn nobody is to blame, and nobody would fare better.
        for case in [c for c in cases if c.variant == culprit] or cases:
            yield _Failed(case, result.reason, result.seconds)
        return
    data = result.data
    for case in cases:
        own = data["variants"].get(case.variant)
        if own is None:
            yield _Failed(case, data["failed"].get(case.variant, "not timed"), 0.0)
        else:
            mine = (own["launches"], own["eager_calls"], own.get("own_clock", {}))
            yield _Measured(case, own["samples"], *mine, data["clock"], data["state"], own["seconds"])


def _outcome(case: Case, measured: Mapping[str, _Measured], failed: Mapping[str, _Failed]) -> CaseOutcome:
    if case.name in measured:
        return CaseOutcome(case.variant, case.shape, "bench", "ok", "", measured[case.name].seconds)
    lost = failed[case.name]
    return CaseOutcome(case.variant, case.shape, "bench", "failed", lost.reason, lost.seconds)


# --- facts --------------------------------------------------------------------------------------


def _group_facts(cases: Sequence[Case], measured: Mapping[str, _Measured], baseline: str) -> Iterator[Fact]:
    """The facts of one shape's cases."""
    timed = [c for c in cases if c.name in measured]
    warm = {c.variant: measured[c.name].samples.get("warm", ()) for c in timed}
    warm = {v: s for v, s in warm.items() if s}
    peers = {c.variant: statistics.median(warm[c.variant]) for c in timed if c.is_peer and c.variant in warm}
    peer = min(peers, key=lambda v: peers[v]) if peers else None
    for case in timed:
        own = measured[case.name]
        for mode, values in own.samples.items():
            yield from _mode_facts(case, own, mode, summarize(values))
        if "warm" in own.samples:
            yield _fact(case, "launches_per_sample", own.launches, f"calls in one graph replay, {own.clock}")
        yield from _ratio_facts(case, "speedup_vs_baseline", warm, baseline, f"baseline {baseline} was not timed")
        yield from _ratio_facts(case, "speedup_vs_peer", warm, peer, "no peer was timed on this shape")
        yield _tflops(case, warm.get(case.variant, ()))
        for name, value in own.own_clock.items():
            yield _fact(case, name, value, "one call after a warm sample", Source.KERNEL)
        yield from _state_facts(case, own.state)


def _fact(
    case: Case, name: str, value: float | int | str | None, note: str = "", source: Source = Source.EVENTS
) -> Fact:
    return Fact(case.subject, name, value, FACTS[name].unit, source, note)


def _mode_facts(case: Case, own: _Measured, mode: str, summary: Summary) -> Iterator[Fact]:
    how = {
        "warm": f"graph replay of {own.launches} calls",
        "cold": "L2 flushed by stores, then one call as a graph",
        "eager": f"{own.eager_calls} calls back to back",
    }[mode]
    note = f"{how}, {own.clock}"
    for name in ("p50", "p90", "mean"):
        yield _fact(case, f"{mode}_{name}", getattr(summary, name), note)
    lacking = f"{summary.count} samples; p99 needs at least {P99_SAMPLES}"
    yield _fact(case, f"{mode}_p99", summary.p99, note if summary.p99 is not None else lacking)
    yield _fact(case, f"{mode}_std", summary.std, note if summary.std is not None else "one sample")
    yield _fact(case, f"{mode}_samples", summary.count, note)


def _ratio_facts(
    case: Case, name: str, warm: Mapping[str, Sequence[float]], other: str | None, lacking: str
) -> Iterator[Fact]:
    names = (name, f"{name}_low", f"{name}_high")
    values: tuple[float | None, ...] = (None, None, None)
    note = lacking
    if other is not None and other in warm and case.variant in warm:
        found = ratio(warm[other], warm[case.variant])
        values = (found.value, found.low, found.high)
        rounds = min(len(warm[other]), len(warm[case.variant]))
        note = f"over {other}: medians of {rounds} rounds, bootstrap over rounds"
    for n, value in zip(names, values, strict=True):
        yield _fact(case, n, value, note)


def _tflops(case: Case, warm: Sequence[float]) -> Fact:
    flop = load_problem(case.root, case.problem_file).work(dict(case.params)).get("flop")
    if not flop or not warm:
        return _fact(case, "tflops", None, "the problem's work() gives no flop" if warm else "not timed warm")
    return _fact(case, "tflops", flop / statistics.median(warm) / 1e6, "work()['flop'] over warm_p50")


def _state_facts(case: Case, state: Mapping[str, Any]) -> Iterator[Fact]:
    """Clock, temperature and throttling while the shape was timed."""
    lacking = state.get("note", "NVML told nothing")
    note = f"{state.get('looks', 0)} looks between the rounds of this shape"
    clocks, degrees, reasons = (state.get(k) for k in ("sm_clock", "temperature", "throttle"))
    for name, value in (
        ("bench_sm_clock", statistics.median(clocks) if clocks else None),
        ("bench_temperature", max(degrees) if degrees else None),
        ("throttle", None if reasons is None else ", ".join(reasons) or "none"),
    ):
        yield _fact(case, name, value, lacking if value is None else note, Source.NVML)


# --- the child ----------------------------------------------------------------------------------


def _perform(task: supervisor.Task, log: supervisor.Journal) -> dict[str, Any]:
    """Times the cases of one shape."""
    payload = task.payload
    device = payload["device"]
    rule = StopRule(**payload["rule"])
    cases = [Case.from_json(c) for c in payload["cases"]]
    problem = load_problem(cases[0].root, cases[0].problem_file)
    timer = timer_for(device)
    inputs = problem.make_inputs(dict(cases[0].params), cases[0].seeds[0], device)
    ready: dict[str, Timed] = {}
    failed: dict[str, str] = {}
    callers: dict[str, Caller] = {}
    for case in cases:
        log.step(task.name, f"{case.variant} made ready")
        try:
            caller = Caller(case, problem, device)
            callers[case.variant] = caller
            ready[case.variant] = timer.prepare(caller.bind(inputs, caller.outputs()))
        except Exception as error:
            if is_poisoned(device):
                raise
            failed[case.variant] = journal.describe(error)
    watch = Watch(device)
    samples: dict[str, dict[str, list[float]]] = {v: {} for v in ready}
    spent = dict.fromkeys(ready, 0.0)
    for mode in payload["modes"]:
        # Where a call takes many ms the modes agree: warm gets the time, the others half of it.
        own_rule = rule if mode == "warm" else replace(rule, slow_seconds=rule.slow_seconds / 2)
        times = sample(ready, mode, own_rule, watch, spent, functools.partial(_announce, log, task.name, mode))
        for variant, values in times.items():
            samples[variant][mode] = values
    own_clocks = {}
    for variant, timed in ready.items():
        log.step(task.name, f"{variant} own clock")
        own_clocks[variant] = _own_clock(callers[variant], inputs, timed)
    data = {
        "variants": {
            v: {
                "own_clock": own_clocks[v],
                "samples": {m: [round(x, 4) for x in values] for m, values in samples[v].items()},
                "launches": t.launches,
                "eager_calls": t.eager_calls,
                "seconds": round(spent[v], 3),
            }
            for v, t in ready.items()
        },
        "failed": failed,
        "clock": timer.clock,
        "state": watch.seen,
    }
    ready.clear()
    callers.clear()
    release(device)
    return data


def _own_clock(caller: Caller, inputs: Mapping[str, Any], timed: Timed) -> dict[str, float]:
    """What a kernel measures of itself, if its operator has the argument ``clocked`` and the output
    ``clocks``: int64 ``[blocks, 4]``, a block's SM cycles at start and stop and the chip's nanoseconds at
    start and stop, of all blocks or of some. NVML samples too slowly for that. Empty for all other
    operators, and for a kernel too short to tell."""
    if not {"clocked", "clocks"} <= {a.name for a in caller.case.arguments}:
        return {}
    outputs = caller.outputs(0)
    timed.warm()  # at the clock that this work settles at
    caller.call({**inputs, "clocked": 1}, outputs)
    synchronize(caller.device)
    rows = outputs["clocks"].cpu()
    # Whole numbers until here: the nanoseconds count from 1970 and do not fit a double.
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


def _announce(log: supervisor.Journal, task: str, mode: str, variant: str) -> None:
    log.step(task, f"{variant} {mode}")


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], _perform))
