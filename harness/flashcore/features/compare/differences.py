"""Differences between two records, beyond the changed facts and times of ``flashcore.explain.diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flashcore import frames
from flashcore.api import recorded
from flashcore.explain.diff import (
    MODES,
    Change,
    TimeChange,
    change,
    changes,
    comparable,
    moved,
    same_code,
    same_shape,
    static_facts,
    time_change,
)
from flashcore.explain.times import Speedup
from flashcore.model.record import Fact, Record, Subject
from flashcore.model.suite import REGIMES

if TYPE_CHECKING:
    from pandas import DataFrame

    from flashcore.api import Run

DURATIONS = ("ncu_duration", "traced_duration")


class Differences(NamedTuple):
    """The differences between two records."""

    static: list[Change]
    times: list[TimeChange]
    imported: list[tuple[Subject, list[Change]]]
    counts: Mapping[str, Counter[str]]

    @classmethod
    def between(cls, a: Record, b: Record) -> Differences:
        """Compares two records. ``counts`` has the number of static facts, times and imported cases by direction,
        without those that both lack."""
        static, cases, compared = changes(a, b), imported(a, b), not comparable(a, b)
        times = timing(a, b) if compared else []
        before, after = static_facts(a), static_facts(b)
        same = sum(f.value is not None and key in after and after[key].value == f.value for key, f in before.items())
        moved = [next((c.direction for c in each if c.fact in DURATIONS), "no difference") for _, each in cases]
        timed = [sum(key.rpartition("/")[2] in MODES for key in r.samples) * compared for r in (a, b)]
        traced = [sum(_is_imported(f, r) for name in DURATIONS for f in r.facts.named(name)) for r in (a, b)]
        counts = {
            "static facts": Counter(c.direction for c in static) + Counter({"no difference": same}),
            "times": _counted([t.direction for t in times], *timed),
            "imported": _counted(moved, *traced),
        }
        return cls(static, times, cases, counts)


def _counted(both: Sequence[str], before: int, after: int) -> Counter[str]:
    return Counter(both) + Counter(appeared=after - len(both), vanished=before - len(both))


def contradiction(ratios: Iterable[tuple[str, Speedup]]) -> tuple[str, str] | None:
    """Returns the regimes in which a pair is fastest and slowest, if these contradict each other beyond noise."""
    decided = [(r.value, mode) for mode, r in ratios if mode in REGIMES and not r.unchanged]
    best, worst = max(decided, default=(1.0, "")), min(decided, default=(1.0, ""))
    return (best[1], worst[1]) if best[0] > 1 > worst[0] else None


def timing(a: Record, b: Record, modes: Sequence[str] = MODES) -> list[TimeChange]:
    """Returns the change of every time that both records have at the same shape."""
    results = []
    for key in b.samples:
        case, _, mode = key.rpartition("/")
        variant, _, shape = case.partition("/")
        subject = Subject(variant, shape=shape)
        if mode in modes and key in a.samples and same_shape(a, b, shape):
            changed = time_change(a.time(subject, mode), b.time(subject, mode), same_code(a, b, case))
            results += [changed] if changed else []
    return results


def remarks(a: Record, b: Record) -> list[str]:
    """Returns the reasons why a comparison of two records may mislead."""
    tools = [(n, getattr(a.environment, n), getattr(b.environment, n)) for n in ("nvcc", "ncu", "driver")]
    results = [
        f"{name} {was or 'not recorded'} before, {now or 'not recorded'} after: differences may be its own"
        for name, was, now in tools
        if was != now
    ]
    reason = comparable(a, b)
    return [*results, f"times are not comparable: {reason}"] if reason else results


def same_builds(a: Record, b: Record) -> tuple[int, int]:
    """Returns how many (variant, arch) have the same machine code in both records, and how many both records have."""
    code = {(x.variant, x.arch): x.code for x in a.artifacts if x.code}
    both = [x.code == code[x.variant, x.arch] for x in b.artifacts if x.code and (x.variant, x.arch) in code]
    return sum(both), len(both)


def imported(a: Record, b: Record) -> list[tuple[Subject, list[Change]]]:
    """Returns the imported cases that both records time: the time if it differs beyond noise, then the counters that
    differ the most."""
    results = []
    for fact in (fact for name in DURATIONS for fact in b.facts.named(name)):
        subject, now = fact.subject, fact.number
        old = a.facts.get(fact.name, subject)
        if now and old and old.number and _is_imported(fact, b) and _is_imported(old, a):
            rest = [c for c in moved(a, b, subject) if c.fact not in DURATIONS]
            differs = not Speedup(old.number / now).unchanged
            results.append((subject, [change(fact, old.value, now), *rest] if differs else rest))
    return results


def _is_imported(fact: Fact, record: Record) -> bool:
    variant = record.suite.variants.get(fact.subject.variant)
    return bool(fact.number and fact.subject.kernel is None and variant and variant.imported)


# --- the Python API --------------------------------------------------------------------------------


class ComparedRuns(NamedTuple):
    """What changed from one run to another.

    ``static`` has a row per :class:`~flashcore.explain.diff.Change`, and is exact. ``times`` has a row per
    :class:`~flashcore.explain.diff.TimeChange`, shown and not judged, since machines and days differ; none where the
    runs are not of one suite and GPU. ``remarks`` say why the comparison may mislead.
    """

    static: DataFrame
    times: DataFrame
    remarks: tuple[str, ...]


def compare(a: Run, b: Run) -> ComparedRuns:
    """Returns the differences from ``a`` to ``b``.

    Raises:
        UsageError: one of them is no run.
    """
    before, after = recorded(a), recorded(b)
    static = frames.frame(Change, changes(before, after))
    times = [] if comparable(before, after) else timing(before, after)
    return ComparedRuns(static, frames.frame(TimeChange, times), tuple(remarks(before, after)))
