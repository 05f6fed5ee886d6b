"""Phases in ns on one axis, the time that each takes, and the Chrome trace."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.model.groups import grouped
from flashcore.plugins.phases.buffer import Warp

UNMARKED = "(unmarked)"  # from the begin of a role to its first phase


class Span(NamedTuple):
    """A phase of a warp, from ``start`` to ``end`` in ns."""

    block: int
    sm: int
    warp: int
    role: str
    phase: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The recorded phases of one call.

    Args:
        spans: by block, warp and time; the first starts at 0.
        dropped: phases that had no place in the buffer.
        ghz: cycles per ns of the SMs, from both clocks of all recorded warps.
        step: ns by which the chip's clock advances, so that SMs may be off against each other by as much.
    """

    spans: Sequence[Span]
    dropped: int
    ghz: float
    step: int

    @property
    def ns(self) -> float:
        """From the first begin of a role to the last end."""
        return max(span.end for span in self.spans)

    @property
    def phases(self) -> list[str]:
        """The names of the phases, in the order of their first start."""
        return list(dict.fromkeys(s.phase for s in sorted(self.spans, key=lambda s: s.start) if s.phase != UNMARKED))


def timeline(calls: Sequence[Sequence[Warp]]) -> Timeline:
    """The call whose recorded time is the median, with the clocks' rate of all calls.

    Raises:
        FlashcoreError: a call recorded nothing, or the clocks did not advance.
    """
    if not all(calls):
        hint = "lane 0 of a warp enters FLASHCORE_ROLE, at this shape too"
        raise FlashcoreError(f"expected recorded warps, found none\n  hint: {hint}")
    warps = [warp for call in calls for warp in call]
    cycles, ns = (sum(w.end[i] - w.begin[i] for w in warps) for i in (0, 1))
    if cycles <= 0 or ns <= 0:
        raise FlashcoreError(f"expected clocks that advance, found {cycles} cycles in {ns} ns")
    stamps = sorted({t for w in warps for t in (w.begin[1], w.end[1])})
    step = math.gcd(*(b - a for a, b in itertools.pairwise(stamps)))
    lines = [Timeline(_spans(call, ns / cycles), sum(w.dropped for w in call), cycles / ns, step) for call in calls]
    return sorted(lines, key=lambda line: line.ns)[(len(lines) - 1) // 2]


def _spans(warps: Sequence[Warp], ns_per_cycle: float) -> list[Span]:
    """The phases of a call. Integers are subtracted first: the clocks exceed what a double holds exactly."""
    first = min(w.begin[1] for w in warps)
    spans = []
    for sm, of_sm in grouped((w.sm, w) for w in warps).items():
        base = of_sm[0].begin[0]
        # One reading of the chip's clock may be late by a step; their mean is less so.
        readings = (reading for w in of_sm for reading in (w.begin, w.end))
        offset = statistics.fmean(ns - first - (clock - base) * ns_per_cycle for clock, ns in readings)
        for w in of_sm:
            # The end of the last phase before dropped ones is not recorded.
            marks = [(w.begin[0], UNMARKED), *w.events, *([] if w.dropped else [(w.end[0], "")])]
            for (start, phase), (end, _) in itertools.pairwise(marks):
                times = (offset + (clock - base) * ns_per_cycle for clock in (start, end))
                spans.append(Span(w.block, sm, w.number, w.role, phase, *times))
    zero = min(s.start for s in spans)
    spans = [s._replace(start=s.start - zero, end=s.end - zero) for s in spans]
    return sorted(spans, key=lambda s: (s.block, s.warp, s.start))


# --- how long each takes ------------------------------------------------------------------------------


class Row(NamedTuple):
    """A phase of a role.

    Args:
        entered: how often a warp of the role enters it.
        ns: in it, per warp.
        share: of the time of the warp's block.
        other, overlap: the phase of the block's other warps that goes on most of this one's time, with its role, and
            the share of this one's time.
    """

    role: str
    phase: str
    warps: int
    entered: float
    ns: float
    share: float
    other: str
    overlap: float


def rows(line: Timeline) -> list[Row]:
    """Every phase of every role, in the order of their first start."""
    blocks = grouped((s.block, s) for s in line.spans)
    whole = {block: max(s.end for s in of) - min(s.start for s in of) for block, of in blocks.items()}
    phases = grouped(((s.role, s.phase), s) for s in sorted(line.spans, key=lambda s: s.start))
    busy = {key: [union(s for s in of if s.block == block) for block in blocks] for key, of in phases.items()}
    made = []
    for (role, phase), spans in phases.items():
        warps = {(s.block, s.warp) for s in line.spans if s.role == role}
        ns = sum(s.end - s.start for s in spans)
        mine = busy[role, phase]
        overlaps = {
            f"{key[0]} {key[1]}": sum(map(common, mine, of))
            for key, of in busy.items()
            if key != (role, phase) and key[1] != UNMARKED
        }
        other = max(overlaps, key=lambda key: overlaps[key], default="")
        length = sum(end - start for of in mine for start, end in of)
        overlap = overlaps[other] / length if other and length else 0.0
        share = ns / sum(whole[block] for block, _ in warps)
        made.append(Row(role, phase, len(warps), len(spans) / len(warps), ns / len(warps), share, other, overlap))
    return made


Intervals = Sequence[tuple[float, float]]


def union(spans: Iterable[Span]) -> Intervals:
    """The time in which at least one of them goes on; they are in the order of their start."""
    merged: list[tuple[float, float]] = []
    for span in spans:
        start, end = merged.pop() if merged and span.start <= merged[-1][1] else (span.start, span.end)
        merged.append((start, max(end, span.end)))
    return merged


def common(one: Intervals, other: Intervals) -> float:
    """The length of what two unions share."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        total += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        i, j = (i + 1, j) if one[i][1] < other[j][1] else (i, j + 1)
    return total


# --- the trace --------------------------------------------------------------------------------------------


def trace(line: Timeline, notes: Mapping[str, Any]) -> dict[str, Any]:
    """The timeline in the Trace Event Format: a process is a block, a thread is a warp, times are in µs.

    Args:
        notes: about the recording.
    """
    names = {(s.block, 0, "process_name"): f"block {s.block} on SM {s.sm}" for s in line.spans}
    names |= {(s.block, s.warp, "thread_name"): f"{s.role}, warp {s.warp}" for s in line.spans}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": what, "pid": block, "tid": warp, "args": {"name": name}}
        for (block, warp, what), name in names.items()
    ]
    for s in line.spans:
        times = {"ts": round(s.start / 1e3, 6), "dur": round((s.end - s.start) / 1e3, 6)}
        events.append({"ph": "X", "name": s.phase, "cat": s.role, "pid": s.block, "tid": s.warp, **times})
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": notes}
