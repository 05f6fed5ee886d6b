"""Chooses the launches to measure with all metrics, from those of the survey. Pure.

A *case* is a kernel at a launch configuration. Launches that are not steady are left out: each case's first, those
after it with another time (warm-up), and those that an autotuner tried and dropped. ncu selects launches by a name
pattern and by each kernel's launch numbers, so one run of the command measures a few launches anywhere in it.
"""

from __future__ import annotations

import itertools
import re
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flashcore.model.groups import grouped
from flashcore.model.record import Dim3
from flashcore.readers.kernel_names import canonical
from flashcore.readers.ncu.numerals import convert
from flashcore.readers.ncu.results import Result

TIME = "gpu__time_duration.sum"
#: Launches of a kernel to measure if the command launches differently in each run.
MOST_AGAIN = 48
_LAUNCH_SECONDS = 0.5  # to measure a launch with all metrics, on an H200
_START_SECONDS = 5.0  # that ncu adds to a run of the command
#: Values that ncu always writes for a launch and that distinguish compiled codes.
_CODE = (
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
#: The namespaces and the name of a function.
_HEAD = re.compile(r"(?:[^<(]*(?:\(anonymous namespace\)|<unnamed>)::)*[^<(]*")
_SHOWN = 60  # characters of a kernel's name
_TUNED, _TRIES = 3, 2  # codes of one function, and launches in a row of each, from which an autotuner is known


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """A kernel, by its mangled name, at a launch configuration. ``code`` has the values of :data:`_CODE`."""

    kernel: str
    grid: Dim3
    block: Dim3
    code: tuple[str, ...]

    @classmethod
    def from_row(cls, row: Result) -> LaunchKey:
        values = map(row.number, _CODE)
        return cls(row.kernel, row.grid, row.block, tuple("" if v is None else str(int(v)) for v in values))

    def __str__(self) -> str:
        name = canonical(self.kernel)
        grid, block = (re.sub("(x1)+$", "", "x".join(map(str, dims))) for dims in (self.grid, self.block))
        return f"{name if len(name) <= _SHOWN else name[:_SHOWN] + '…'} <<<{grid}, {block}>>>"


class SurveyedLaunch(NamedTuple):
    """A launch of the survey, with its time, if recorded."""

    process: str
    key: LaunchKey
    us: float | None

    @classmethod
    def from_row(cls, row: Result) -> SurveyedLaunch:
        reading = row.read(TIME)
        ns = None if reading.value is None else convert(reading.value, reading.unit, "ns")
        return cls(row.process, LaunchKey.from_row(row), None if ns is None else ns / 1e3)


@dataclass(frozen=True, slots=True)
class CapturedCase:
    """All launches of a case in the process that launched it most.

    ``at`` are their places among all launches of that process, ``us`` their times, ``warm_up`` how many of the first
    are not steady. ``dropped``: an autotuner tried this code and took another.
    """

    key: LaunchKey
    process: str
    at: tuple[int, ...]
    us: tuple[float, ...]
    warm_up: int = 0
    dropped: bool = False

    @property
    def total_us(self) -> float:
        return sum(self.us)

    @property
    def steady(self) -> tuple[int, ...]:
        return self.at[self.warm_up :]


class Survey(NamedTuple):
    """The survey's cases by falling time. ``launches`` holds the kernels' names in order, by process."""

    cases: tuple[CapturedCase, ...]
    launches: Mapping[str, tuple[str, ...]]

    @property
    def total_us(self) -> float:
        return sum(case.total_us for case in self.cases)

    def key_of(self, row: Result) -> LaunchKey:
        """The key of a measured launch. If the survey saw one code of that kernel and configuration, it is that one:
        CUPTI and ncu may count registers differently."""
        key = LaunchKey.from_row(row)
        alike = [case.key for case in self.cases if replace(case.key, code=key.code) == key]
        return alike[0] if len(alike) == 1 else key


@dataclass(frozen=True, slots=True)
class Choice:
    """Launches to measure in one run of the command: in each process, those of ``kernels`` with these ``numbers``,
    which count each kernel's launches from 1. The survey saw ``count`` such launches."""

    kernels: tuple[str, ...]
    numbers: tuple[int, ...]
    count: int

    @property
    def base(self) -> str:
        """The kind of names that ncu matches: mangled, or demangled if it gave demangled ones."""
        return "demangled" if any(set(name) & set("<(") for name in self.kernels) else "mangled"

    @property
    def kernel_id(self) -> str:
        """The value of ncu's ``--kernel-id``: any context, any stream, a name pattern, a pattern of numbers."""
        return f"::regex:{pattern(self.kernels)}:^({'|'.join(map(str, self.numbers))})$"


def survey(launches: Iterable[SurveyedLaunch]) -> Survey:
    """Groups the launches into cases, and marks those that are not steady."""
    names: dict[str, list[str]] = {}
    times: dict[tuple[LaunchKey, str], list[tuple[int, float]]] = {}
    orders: dict[tuple[str, str], list[LaunchKey]] = {}  # of a function in a process
    for launch in launches:
        before, key = names.setdefault(launch.process, []), launch.key
        if launch.us is not None:
            times.setdefault((key, launch.process), []).append((len(before), launch.us))
            orders.setdefault((launch.process, canonical(key.kernel).partition("<")[0]), []).append(key)
        before.append(key.kernel)
    dropped = {(code, process) for (process, _), order in orders.items() for code in _dropped(order)}
    cases: dict[LaunchKey, CapturedCase] = {}
    for (key, process), timed in times.items():
        at, us = zip(*timed, strict=True)
        case = CapturedCase(key, process, at, us, _warm_up(us), (_code(key), process) in dropped)
        if key not in cases or len(cases[key].at) < len(case.at):
            cases[key] = case
    ordered = sorted(cases.values(), key=lambda case: -case.total_us)
    return Survey(tuple(ordered), {process: tuple(kernels) for process, kernels in names.items()})


def _code(key: LaunchKey) -> tuple[object, ...]:
    return (key.kernel, key.block, key.code)


def _warm_up(times: Sequence[float]) -> int:
    """How many of the first launches differ from the later half by more than 10 %: at least one, at most half."""
    if len(times) == 1:
        return 0
    half = len(times) // 2
    usual = statistics.median(times[half:])
    return next((i for i in range(1, half) if abs(times[i] - usual) <= 0.1 * usual), max(1, half))


def _dropped(order: Sequence[LaunchKey]) -> set[tuple[object, ...]]:
    """The codes of a function that an autotuner tried and did not take.

    It runs each of several codes a few times in a row, and then the best again: a code that ran in one row, and never
    again once one that had been tried before came back, was dropped. A loop over sizes returns to none.
    """
    rows = [(code, len(list(launches))) for code, launches in itertools.groupby(map(_code, order))]
    seen: dict[tuple[object, ...], int] = {}
    for code, length in rows:
        if code in seen:  # it came back: the trials up to now have ended
            rest = {later for later, _ in rows[len(seen) :]}
            tried = [c for c, n in seen.items() if n >= _TRIES]
            return {c for c in tried if c not in rest} if len(tried) >= _TUNED else set()
        seen[code] = length
    return set()


def select(
    surveyed: Survey, top: int, first: int = 0, last: int | None = None, *, keep_dropped: bool = False
) -> list[CapturedCase]:
    """Returns the ``top`` cases by time with a launch between ``first`` and ``last`` (places among their process's
    launches), without codes that an autotuner dropped. ``at`` are the launches to choose from: steady ones, if any."""
    selected = []
    for case in surveyed.cases:
        within = [at for at in case.at if at >= first and (last is None or at < last)]
        if within and (keep_dropped or not case.dropped):
            steady = set(case.steady)
            selected.append(replace(case, at=tuple([at for at in within if at in steady] or within)))
    return selected[:top]


def choices(surveyed: Survey, cases: Sequence[CapturedCase], seconds: float = 0.0) -> list[Choice]:
    """The launches to measure in each run of the command, which takes ``seconds``: each case is in one of them."""
    by_process = grouped((case.process, case) for case in cases)
    return [
        choice
        for process, group in by_process.items()
        for choice in _split(_Numbered(surveyed.launches[process]), group, seconds)
    ]


class _Numbered:
    """The launches of a process, each with its number among those of its kernel."""

    def __init__(self, launches: Sequence[str]) -> None:
        self.totals: Counter[str] = Counter()
        self.at: list[int] = []
        for kernel in launches:
            self.totals[kernel] += 1
            self.at.append(self.totals[kernel])

    def choose(self, cases: Sequence[CapturedCase]) -> Choice:
        """Few numbers that hold a steady launch of each case, by a greedy cover: ncu measures all kernels' launches of
        each number. Of equal numbers the middle one, since the command may launch slightly earlier or later."""
        kernels = tuple(sorted({case.key.kernel for case in cases}))
        passing = re.compile(pattern(kernels))
        totals = sorted(total for name, total in self.totals.items() if passing.search(name))
        measures: dict[int, set[int]] = {}
        for i, case in enumerate(cases):
            for at in case.at:
                measures.setdefault(self.at[at], set()).add(i)
        costs = {number: len(totals) - bisect_left(totals, number) for number in measures}
        numbers, left = list[int](), set(range(len(cases)))
        while left:
            worth = {n: (len(new) / costs[n], len(new)) for n, covered in measures.items() if (new := covered & left)}
            most = max(worth.values())
            best = sorted(n for n, value in worth.items() if value == most)
            numbers.append(best[len(best) // 2])
            left -= measures[numbers[-1]]
        return Choice(kernels, tuple(sorted(numbers)), sum(costs[number] for number in numbers))


def _split(numbered: _Numbered, cases: Sequence[CapturedCase], seconds: float) -> list[Choice]:
    """One choice, or two for halves of the kernels where another run takes less time than the needless launches."""
    whole = numbered.choose(cases)
    if len(whole.kernels) == 1 or (whole.count - len(cases)) * _LAUNCH_SECONDS <= seconds + _START_SECONDS:
        return [whole]
    half = set(whole.kernels[: len(whole.kernels) // 2])
    parts = ([case for case in cases if (case.key.kernel in half) is first] for first in (True, False))
    return [choice for part in parts for choice in _split(numbered, part, seconds)]


def wider_choices(surveyed: Survey, cases: Sequence[CapturedCase], attempt: int) -> list[Choice]:
    """More launches of each case's kernel, for a case that was not launched where it was seen: the command may launch
    differently in each run. First around the middle of its steady launches, then from its first launch on."""
    again = []
    for case in cases:
        chosen = _Numbered(surveyed.launches[case.process]).choose([case])
        count = MOST_AGAIN if attempt else MOST_AGAIN // 4
        first = min(2, len(case.us))  # of several launches the first is not steady
        start = first if attempt else max(first, chosen.numbers[0] - count // 2)
        again.append(replace(chosen, numbers=tuple(range(start, start + count)), count=count))
    return again


def pattern(kernels: Iterable[str]) -> str:
    """A regular expression of ncu's for the kernels' names. Of demangled ones template arguments and parameters are
    left out, which ncu spells in several ways. Dots replace characters with a meaning to ncu."""
    heads = dict.fromkeys(_HEAD.match(name)[0] for name in kernels)  # type: ignore[index] # it matches the empty text
    return "^(" + "|".join(re.sub(r"[\\^$.|?*+()\[\]{}:]", ".", head) for head in heads) + r")([<(]|$)"
