"""The series of recorded times, their changes, and which of them are news."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flashcore.errors import Exit, UsageError
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.text import number
from flashcore.records.index import Index, TimePoint
from flashcore_trends import detect
from flashcore_trends.detect import Change

if TYPE_CHECKING:
    import numpy as np
else:
    from flashcore_trends.detect import np

#: What a night did to all cases, as a logarithm, from which it is reported; relative changes of a counter and a clock.
_NIGHT, _COUNTER, _CLOCK = 0.02, 0.02, 0.02
#: Counters that explain a time.
COUNTERS = ("dram_bytes", "l2_bytes", "tensor_active", "achieved_occupancy", "instructions")


class Finding(NamedTuple):
    """A change of a case's time.

    Args:
        percent: how much longer a call takes; negative: faster.
        error: one standard error of ``percent``.
        before, after: the last point before, and the first one of the new level.
        reasons: what else changed between them, in words.
    """

    change: Change
    percent: float
    error: float
    before: TimePoint
    after: TimePoint
    reasons: tuple[str, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Series:
    """The times of one case on one GPU model, oldest first.

    ``levels`` are the times less what each night did to all cases, in us. ``missing``: the newest runs of the suite do
    not have it, though the run before them does. ``judged`` is false if it has too few times for any change.
    """

    points: tuple[TimePoint, ...]
    levels: tuple[float, ...]
    findings: tuple[Finding, ...]
    missing: bool

    @property
    def judged(self) -> bool:
        return len(self.points) >= detect.BEFORE + detect.AFTER

    @property
    def case(self) -> str:
        return f"{self.points[-1].variant}/{self.points[-1].shape}"

    @property
    def news(self) -> list[Finding]:
        return [f for f in self.findings if f.is_new]


@dataclass(frozen=True, slots=True)
class Trends:
    """All series; ``nights`` says what new nights did to all cases of a suite; ``stale``: there is no new night."""

    series: tuple[Series, ...]
    nights: tuple[str, ...]
    stale: bool

    def news(self, *blames: str) -> list[tuple[Series, Finding]]:
        """The new changes with one of these blames, the largest slowdown first."""
        news = [(s, f) for s in self.series for f in s.news if f.change.blame in blames]
        return sorted(news, key=lambda x: -x[1].percent)

    @property
    def missing(self) -> list[str]:
        return [s.case for s in self.series if s.missing]

    @property
    def exit_code(self) -> Exit:
        """1: a kernel got slower. 3: undecided, or a case is no longer timed, or none has enough runs."""
        if any(f.percent > 0 for _, f in self.news("kernel")):
            return Exit.FAILED
        undecided = any(f.percent > 0 for _, f in self.news("undecided"))
        unjudged = self.stale or not any(s.judged for s in self.series)
        return Exit.UNMEASURED if undecided or unjudged or self.missing else Exit.OK


def trends(index: Index, since: str | None = None, *, about: tuple[str, str | None] | None = None) -> Trends:
    """The trends of all cases.

    Args:
        about: only those of this suite on this GPU model.
        since: a run's id or its beginning, such as a date: changes that were already visible with the runs up to it
            are no news. ``None``: with all runs of the suite but the newest.

    Raises:
        UsageError: ``since`` does not begin like a run's id.
    """
    if since is not None and not re.fullmatch(r"\d{4,8}|\d{8}T[0-9TZa-f-]*", since):
        raise UsageError(f"--since {since}: expected a run's id or its beginning, such as 20260105")
    series: list[Series] = []
    nights: list[str] = []
    for place, points in grouped(((p.suite, p.gpu), p) for p in index.points("time")).items():
        if about not in (None, place):
            continue
        made, told = _of_suite(index, points, since)
        series += made
        nights += told
    newest = max((s.points[-1].run for s in series), default="")
    return Trends(tuple(series), tuple(nights), since is not None and newest[: len(since)] <= since)


def _of_suite(index: Index, points: Sequence[TimePoint], since: str | None) -> tuple[list[Series], list[str]]:
    runs = sorted({p.run for p in points})
    old = len(runs) - 1 if since is None else sum(run[: len(since)] <= since for run in runs)
    by_case = list(grouped(((p.variant, p.shape, p.params, p.mode), p) for p in points).values())
    at = {run: night for night, run in enumerate(runs)}
    logs = np.full((len(by_case), len(runs)), np.nan)
    code, machine = np.full(logs.shape, -1), np.full(logs.shape, -1)
    codes: dict[str, int] = {}
    machines: dict[Any, int] = {}
    for row, case in enumerate(by_case):
        for p in case:
            logs[row, at[p.run]] = np.log(p.value)
            code[row, at[p.run]] = codes.setdefault(p.code or p.run, len(codes))
            machine[row, at[p.run]] = machines.setdefault((p.uuid, p.driver, p.limits), len(machines))
    effects = detect.night_effects(logs, code)
    far = detect.spreads(logs - effects, code, machine.max(axis=0))
    newest = {(p.variant, p.shape) for p in points if at[p.run] >= old}  # whatever their parameters and timing modes
    results = []
    for row, case in enumerate(by_case):
        timed = np.isfinite(logs[row])
        nights = np.flatnonzero(timed)
        levels = (logs[row] - effects)[timed]
        columns = code[row, timed], machine[row, timed], far[timed]
        changes = detect.changes(levels, *columns)
        earlier = int(np.sum(nights < old))
        before = detect.changes(levels[:earlier], *(c[:earlier] for c in columns)) if changes else []
        findings = [_finding(index, case, c, all(abs(c.at - b.at) > detect.SAME for b in before)) for c in changes]
        missing = bool(0 < old < len(runs) and timed[old - 1]) and (case[0].variant, case[0].shape) not in newest
        results.append(Series(tuple(case), tuple(np.exp(levels).tolist()), tuple(findings), missing))
    told = [
        f"{points[0].suite}: all cases took {100 * np.expm1(effects[night]):+.1f} % in run {runs[night]}: the machine"
        for night in range(old, len(runs))
        if abs(effects[night]) > _NIGHT
    ]
    return results, told


def _finding(index: Index, case: Sequence[TimePoint], change: Change, is_new: bool) -> Finding:
    before, after = case[change.at - 1], case[change.at]
    if change.blame == "kernel" and not (before.code and after.code):
        change = change._replace(blame="undecided")  # whether its machine code changed is not recorded
    percent, error = 100 * float(np.expm1(change.size)), 100 * change.error
    return Finding(change, percent, error, before, after, (*_reasons(index, before, after),), is_new)


def _reasons(index: Index, before: TimePoint, after: TimePoint) -> list[str]:
    """The differences between two points that may explain a time: machine and tools, static facts, counters."""
    old, new = (index.values(p.run, p.variant, p.shape) for p in (before, after))
    return [*differences(before, after), *static_changes(old, new), *counter_changes(old, new)]


def differences(before: TimePoint, after: TimePoint) -> list[str]:
    """The differences of GPU, driver, limits, compiler and clock between two points, in words."""
    pairs = {
        "GPU": (before.uuid, after.uuid),
        "driver": (before.driver, after.driver),
        "limits": (before.limits, after.limits),
        "nvcc": (before.nvcc, after.nvcc),
    }
    changed = [f"{name} {was or 'unknown'} → {now or 'unknown'}" for name, (was, now) in pairs.items() if was != now]
    if before.clock and after.clock and abs(after.clock / before.clock - 1) > _CLOCK:
        changed.append(f"clock {before.clock:,.0f} → {after.clock:,.0f} MHz")
    return changed


def static_changes(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[str, ...]:
    """The static facts that differ between two runs of a case."""
    both = sorted(name for name in old.keys() & new.keys() & FACTS.keys() if FACTS[name].group == "static")
    return tuple(_changed(name, old, new) for name in both if old[name] != new[name])


def counter_changes(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[str, ...]:
    """The counters that differ by more than 2 % between two runs of a case."""
    both = [name for name in COUNTERS if name in old and name in new]
    return tuple(_changed(name, old, new) for name in both if abs(new[name] - old[name]) > _COUNTER * abs(old[name]))


def _changed(name: str, old: Mapping[str, float], new: Mapping[str, float]) -> str:
    return f"{name} {number(old[name])} → {number(new[name])}"
