"""Compares two records.

Static facts compare exactly. Times of different runs are shown with the interval of their ratio but never judged, since
machines and days differ; times of one run may be judged.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flashcore.explain.predictions import still
from flashcore.model.catalogue import FACTS, OWN_STAGE
from flashcore.model.intervals import Ratio, ratio
from flashcore.model.record import Fact, Facts, Record, Subject, Value
from flashcore.model.suite import REGIMES, Tier
from flashcore.model.text import faster, number

Direction = Literal["better", "worse", "changed", "appeared", "vanished"]
MODES = (*REGIMES, "eager")


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs. ``before`` or ``after`` is ``None`` if unmeasured."""

    subject: Subject
    fact: str
    unit: str
    before: Value | None
    after: Value | None
    direction: Direction

    @property
    def text(self) -> str:
        """``96 B → 128 B``."""
        return f"{number(self.before, self.unit)} → {number(self.after, self.unit)}"


def changes(a: Record, b: Record, tiers: Sequence[Tier] = ("static",)) -> list[Change]:
    """Returns the facts of these tiers whose values differ from ``a`` to ``b``, in the order of ``b``.

    Static facts compare within one nvcc release only; see :func:`remarks`.
    """
    before, after = _facts(a, tiers), _facts(b, tiers)
    results = []
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        was, now = old.value if old else None, new.value if new else None
        if was == now:
            continue
        fact = new or old
        assert fact is not None
        results.append(Change(fact.subject, fact.name, fact.unit, was, now, _direction(fact.name, was, now)))
    return results


def one_sided(a: Record, b: Record) -> dict[str, tuple[Direction, int]]:
    """Returns the variants with static facts in one record only: whether they appeared or vanished, and the number of
    facts."""
    before, after = (Counter(s.variant for _, s in _facts(r, ("static",))) for r in (a, b))
    return {v: ("appeared", n) for v, n in after.items() if v not in before} | {
        v: ("vanished", n) for v, n in before.items() if v not in after
    }


def narrowed(record: Record, variants: Collection[str]) -> Record:
    """Returns the record with only these variants."""
    return replace(
        record,
        facts=Facts(f for f in record.facts if f.subject.variant in variants),
        samples={case: samples for case, samples in record.samples.items() if case.split("/")[0] in variants},
        artifacts=tuple(x for x in record.artifacts if x.variant in variants),
    )


def _facts(record: Record, tiers: Sequence[Tier]) -> dict[tuple[str, Subject], Fact]:
    return {
        (f.name, f.subject): f
        for f in record.facts
        if (spec := FACTS.get(f.name)) is not None
        and (spec.tier in tiers or (spec.group == "static" and "static" in tiers))
        and f.name != "local_memory_site"  # a line number changes with every comment above it
    }


def _direction(name: str, was: Value | None, now: Value | None) -> Direction:
    if was is None or now is None:
        return "appeared" if was is None else "vanished"
    better = FACTS[name].better
    if not better or isinstance(was, str) or isinstance(now, str):
        return "changed"
    return "better" if (now < was) == (better == "lower") else "worse"


@dataclass(frozen=True, slots=True)
class TimeChange:
    """The ratio of two median times, with its 95 % interval.

    Args:
        ratio: before over after: above 1 is faster.
        judged: whether both were timed in the same run; else the ratio is only shown.
        same_code: both ran the same machine code, so that any difference is noise.
    """

    subject: Subject
    mode: str
    before_us: float
    after_us: float
    ratio: float
    low: float
    high: float
    judged: bool
    same_code: bool

    @property
    def text(self) -> str:
        """``1.953 × faster [1.930, 1.980]``, or that no difference can be seen."""
        interval = f"[{self.low:.3f}, {self.high:.3f}]"
        if self.low <= 1 <= self.high:
            return f"no difference to be seen, ratio {self.ratio:.3f} {interval}"
        return f"{faster(self.ratio, shown=f'{self.ratio:.3f}')} {interval}"


def contradiction(ratios: Iterable[tuple[str, Ratio]]) -> tuple[str, str] | None:
    """Returns the regimes in which a pair is fastest and slowest, if these contradict each other beyond noise."""
    decided = [(r.value, mode) for mode, r in ratios if mode in REGIMES and not still(r.value, r.low, r.high)]
    best, worst = max(decided, default=(1.0, "")), min(decided, default=(1.0, ""))
    return (best[1], worst[1]) if best[0] > 1 > worst[0] else None


def timing(a: Record, b: Record, modes: Sequence[str] = MODES) -> list[TimeChange]:
    """Returns the change of every time that both records have at the same shape."""
    results = []
    for key, after in b.samples.items():
        case, _, mode = key.rpartition("/")
        variant, _, shape = case.partition("/")
        before = a.samples.get(key)
        if mode not in modes or not before or not after or not same_shape(a, b, shape):
            continue
        subject = Subject(variant, shape=shape)
        results.append(time_change(subject, mode, before, after, a.id == b.id, same_code(a, b, case)))
    return results


def time_change(
    subject: Subject, mode: str, before: Sequence[float], after: Sequence[float], judged: bool, same_code: bool
) -> TimeChange:
    """Returns the change between one mode's samples; ``judged`` ones were timed in the same rounds."""
    was, now = statistics.median(before), statistics.median(after)
    interval = ratio(before, after, paired=judged)
    return TimeChange(subject, mode, was, now, was / now, interval.low, interval.high, judged, same_code)


def same_shape(a: Record, b: Record, shape: str) -> bool:
    one, other = a.suite.shapes.get(shape), b.suite.shapes.get(shape)
    return one is not None and other is not None and one.params == other.params


def same_code(a: Record, b: Record, case: str) -> bool:
    one, other = a.keys.get(case), b.keys.get(case)
    if one is None or other is None or one.peer or other.peer:
        return False
    return (one.code, one.nvcc) == (other.code, other.nvcc)


def comparable(a: Record, b: Record) -> str:
    """Returns why the times of two records must not be shown together; empty if they may be."""
    if a.suite.name != b.suite.name:
        return f"of suite {a.suite.name}, not {b.suite.name}"
    if a.gpu is None or b.gpu is None:
        return f"{'both were' if a.gpu == b.gpu else 'one of the two was'} recorded without a GPU"
    return "" if a.gpu == b.gpu else f"measured on {a.gpu}, not {b.gpu}"


def remarks(a: Record, b: Record) -> list[str]:
    """Returns the reasons why a comparison of two records may mislead."""
    results = []
    one, other = a.environment, b.environment
    for tool, was, now in (
        ("nvcc", one.nvcc, other.nvcc),
        ("ncu", one.ncu, other.ncu),
        ("driver", one.driver, other.driver),
    ):
        if was != now:
            results.append(
                f"{tool} {was or 'not recorded'} before, {now or 'not recorded'} after: differences may be its own"
            )
    reason = comparable(a, b)
    return [*results, f"times are not comparable: {reason}"] if reason else results


def same_builds(a: Record, b: Record) -> tuple[int, int]:
    """Returns how many (variant, arch) have the same machine code in both records, and how many both records have."""
    code = {(x.variant, x.arch): x.code for x in a.artifacts if x.code}
    both = [x.code == code[x.variant, x.arch] for x in b.artifacts if x.code and (x.variant, x.arch) in code]
    return sum(both), len(both)


MOVED = 0.05  # the smallest relative change of a counter that is shown
MOST_MOVED = 5


def moved(
    a: Record, b: Record, subject: Subject, before: Subject | None = None, most: int | None = MOST_MOVED
) -> list[Change]:
    """Returns the counters of a case that differ the most: possible causes of a changed time.

    Args:
        before: the case of ``a``, if it differs from ``subject``.
    """
    results: list[tuple[float, Change]] = []
    for fact in b.facts.of(subject.variant):
        spec = FACTS.get(fact.name)
        was = a.facts.number(fact.name, before or subject)
        now = fact.number
        if fact.subject != subject or spec is None or spec.tier != "counters" or spec.group in OWN_STAGE:
            continue
        if was is None or now is None or max(abs(was), abs(now)) == 0:
            continue
        share = abs(now - was) / max(abs(was), abs(now))
        if share > MOVED:
            direction = _direction(fact.name, was, now)
            results.append((share, Change(subject, fact.name, fact.unit, was, now, direction)))
    return [change for _, change in sorted(results, key=lambda x: (-x[0], x[1].fact))[:most]]


def imported(a: Record, b: Record) -> list[tuple[Subject, list[Change]]]:
    """Returns the imported cases of both records: ncu's duration if it differs, then the counters that differ the
    most."""
    results = []
    for fact in b.facts.named("ncu_duration"):
        subject, now = fact.subject, fact.value
        variants = [r.suite.variants.get(subject.variant) for r in (a, b)]
        old = a.facts.get("ncu_duration", subject)
        if subject.kernel is None and old is not None and all(v and v.imported for v in variants):
            time = Change(subject, fact.name, fact.unit, old.value, now, _direction(fact.name, old.value, now))
            rest = [c for c in moved(a, b, subject) if c.fact != fact.name]
            results.append((subject, [time, *rest] if now != old.value else rest))
    return results
