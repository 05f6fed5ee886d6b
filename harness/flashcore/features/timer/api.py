"""Times functions in turns in the present process, with bench's timing modes and the decision of ``bench --against``.

Each repetition captures new graphs, of each function and of the first one again, in another order. It counts once, as a
process does in ``bench --against``; the second timing of the first function gives the spread of no change.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple, get_args

from flashcore.api import expect
from flashcore.errors import UsageError
from flashcore.frames import pandas
from flashcore.machine.gpu_state import Watch
from flashcore.model import intervals
from flashcore.model.slower import ProcessTimes, decide
from flashcore.model.suite import TimingMode
from flashcore.model.text import bracketed, count, did_you_mean, faster, function_name, significant
from flashcore.runner.kernel_call import require_device
from flashcore.stages.bench.interleave import Turns, release, sample
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import STAND_IN, Timer, rotated, timer_for

if TYPE_CHECKING:
    from pandas import DataFrame

Function = Callable[[], object]
REPETITIONS = 6
#: Rounds of a repetition; fewer of slow calls.
_RULE = StopRule(20, 20, slow_seconds=0.5, fewest=5)
#: The driver's reasons for a lower clock that void times; the others, such as the power limit, are in the note.
_VOID = {"hardware_slowdown", "thermal_software", "thermal_hardware", "power_brake"}
_AGAIN = "(the first again)"
_NO_TIMES = (math.nan,) * 6


class Timing(NamedTuple):
    """The time of a function: a row of the frame, see :func:`time`."""

    name: str
    mode: str
    p50: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: str
    note: str

    def __str__(self) -> str:
        if self.verdict == "void":
            return f"{self.name}: void: {self.note}"
        ends = f"[{significant(self.low)}, {significant(self.high)}]"
        parts = [f"{self.name}: {self.mode.replace('_', ' ')} {significant(self.p50)} µs {ends}"]
        if self.verdict:
            ratio = faster(self.ratio, "the first", f"{self.ratio:.3f}")
            parts.append(f"{ratio} {bracketed(self.ratio_low, self.ratio_high)}: {self.verdict}")
        return ", ".join([*parts, *([self.note] if self.note else [])])


def time(*functions: Function, mode: TimingMode = "isolated") -> DataFrame:
    """Times functions without arguments in turns on the present GPU. Prints a line and returns a row for each.

    Calls are timed in CUDA graphs; if one of them cannot be captured, all are timed eagerly, and ``mode`` is ``eager``.
    They work on torch's current stream, which is another one during the call. Each call has the same memory.

    Columns: ``name``; ``mode``; ``p50``, ``low``, ``high``: the median of a call in microseconds, with its 95 %
    interval; ``ratio``, ``ratio_low``, ``ratio_high``: the first function's time over this one's, above 1 if this one
    is faster, and the interval that noise leaves open (one false alarm in 1,000 calls of ``time``); ``verdict``:
    faster, slower, no difference, too small to matter (under 1 %), undecided, or void; ``note``: why. Void times are
    missing.

    Args:
        functions: torch functions, launches of Triton kernels, or raw launches on ``torch.cuda.current_stream()``.
        mode: ``isolated``: a call alone, its inputs in L2; ``back_to_back``: many calls one after the other; ``cold``:
            a call alone, L2 flushed before.

    Raises:
        CapabilityError: no GPU, or no pandas.
        UsageError: no function, or no such mode. What a function raises is raised.
    """
    rows = timings(functions, mode)
    for row in rows:
        print(row)
    frame: DataFrame = pandas().DataFrame(rows)
    return frame


def assert_faster(function: Function, than: Function, *, by: float = 1.0, mode: TimingMode = "isolated") -> None:
    """Asserts that a function is faster than another, at least ``by`` times: 1.2 is 20 % more calls in the same time.

    Raises:
        AssertionError: it is not, or that is undecided or void; the message says why.
        CapabilityError, UsageError: see :func:`time`; or ``by`` is not above 0.
    """
    expect("a number", Real, "by=1.1", by)
    if not 0 < by < math.inf:
        raise UsageError(f"by={by:g}: expected how many times faster, above 0, such as 1.1")
    before, row = timings((than, function), mode)
    expected = f"expected {row.name} at least {by:g} × faster than {function_name(than)}"
    if void := next((one for one in (row, before) if one.verdict == "void"), None):
        raise AssertionError(f"{expected}, found void times of {void.name}: {void.note}")
    if not row.ratio_low >= by:
        undecided = "" if row.ratio_high < by else "undecided: "
        found = f"{row.ratio:.3f} × {bracketed(row.ratio_low, row.ratio_high)}"
        raise AssertionError(f"{expected}, found {undecided}{found}" + f": {row.note}" * bool(row.note))


def timings(functions: Sequence[Function], mode: TimingMode) -> list[Timing]:
    """See :func:`time`."""
    expect("a function", Callable, "fc.time(f, g)", *functions)
    if mode not in (modes := get_args(TimingMode)):
        raise UsageError(f"mode={mode!r}: expected one of {', '.join(modes)}{did_you_mean(mode, modes)}")
    device = "cpu" if os.environ.get(STAND_IN) else "cuda"
    require_device(device)
    labels = _labels(functions)
    calls = dict(zip(labels, functions, strict=True)) | ({_AGAIN: functions[0]} if functions[1:] else {})
    times: dict[str, list[float]] = defaultdict(list)
    processes: dict[str, list[ProcessTimes]] = defaultdict(list)
    watch, first = Watch(device), labels[0]
    with _timer(device) as timer:
        nodes = {label: timer.nodes(call) for label, call in calls.items()}
        obstacles = {label: why for label, why in nodes.items() if isinstance(why, str)}
        timed = "eager" if obstacles else mode
        for repetition in range(REPETITIONS):
            order = rotated([*calls], repetition)
            ready = {label: timer.prepare([calls[label]], graphs=not obstacles) for label in order}
            samples = sample(ready, timed, _RULE, Turns(watch, lambda *_: None))
            rounds = min(map(len, samples.values()))
            sides = {label: values[:rounds] for label, values in samples.items()}
            for label in labels:
                times[label] += samples[label]
                if label != first:
                    processes[label].append(ProcessTimes.of(sides[first], sides[label], sides[_AGAIN]))
            del ready
            release(device)
    notes = [f"eager, since {label} is not captured: {why}" for label, why in obstacles.items()][:1]
    throttled = dict.fromkeys(watch.seen.get("throttle", ()))
    notes += [f"clock limited by {', '.join(throttled)}"] if throttled else []
    others = watch.seen.get("others")
    void = [f"clock limited by {reason}" for reason in throttled if reason in _VOID]
    void += [f"{count(others, 'other process')} on the GPU"] if others else []
    decisions = decide(processes) if nodes[first] != (0, 0) else {}
    rows = []
    for label in labels:
        if reasons := [*void, *(["it launches nothing on torch's current stream"] if nodes[label] == (0, 0) else [])]:
            rows.append(Timing(label, timed, *_NO_TIMES, "void", "; ".join(reasons)))
            continue
        decision, levels, p50 = decisions.get(label), intervals.levels(times[label]), intervals.median(times[label])
        more = [*notes, *([decision.reason] if decision else []), *([levels.text] if levels else [])]
        if not obstacles and nodes[label][1]:
            more.append("it copies in a graph, which can take longer than a copy on a stream")
        ratio = _NO_TIMES[:3]
        if decision and decision.change is not None and decision.critical is not None:
            value, noise = 1 / (1 + decision.change), 1 + decision.critical
            ratio = value, value / noise, value * noise
        verdict, note = decision.outcome if decision else "", "; ".join(filter(None, more))
        rows.append(Timing(label, timed, p50.value, p50.low, p50.high, *ratio, verdict, note))
    return rows


@contextlib.contextmanager
def _timer(device: str) -> Iterator[Timer]:
    """The timer of the current device; its stream is current meanwhile, and follows earlier work."""
    if device == "cpu":
        yield timer_for(device)
        return
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.current_stream()
    timer = timer_for(f"cuda:{torch.cuda.current_device()}")
    torch.cuda.set_stream(timer.stream)
    try:
        yield timer
    finally:
        torch.cuda.synchronize()
        torch.cuda.set_stream(before)


def _labels(functions: Sequence[Function]) -> list[str]:
    """The functions' names; of namesakes, numbered from the second on: ``softmax``, ``softmax 2``."""
    seen = Counter[str]()
    labels = []
    for function in functions:
        seen[name := function_name(function)] += 1
        labels.append(f"{name} {seen[name]}" if seen[name] > 1 else name)
    return labels
