"""Differences between two records, beyond the changed facts and times of :mod:`flashcore.explain.diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from flashcore.explain.diff import (
    MODES,
    MOVED,
    Change,
    Direction,
    TimeChange,
    change,
    comparable,
    same_code,
    same_shape,
    static_facts,
    time_change,
)
from flashcore.explain.predictions import still
from flashcore.model.catalogue import FACTS, OWN_STAGE
from flashcore.model.intervals import Ratio
from flashcore.model.record import Facts, Record, Subject
from flashcore.model.suite import REGIMES

MOST_MOVED = 5


def one_sided(a: Record, b: Record) -> dict[str, tuple[Direction, int]]:
    """Returns the variants with static facts in one record only: whether they appeared or vanished, and the number of
    facts."""
    before, after = (Counter(s.variant for _, s in static_facts(r)) for r in (a, b))
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
            results.append((share, change(fact, was, now)))
    return [one for _, one in sorted(results, key=lambda x: (-x[0], x[1].fact))[:most]]


def imported(a: Record, b: Record) -> list[tuple[Subject, list[Change]]]:
    """Returns the imported cases of both records: ncu's duration if it differs, then the counters that differ the
    most."""
    results = []
    for fact in b.facts.named("ncu_duration"):
        subject, now = fact.subject, fact.value
        variants = [r.suite.variants.get(subject.variant) for r in (a, b)]
        old = a.facts.get("ncu_duration", subject)
        if subject.kernel is None and old is not None and all(v and v.imported for v in variants):
            time = change(fact, old.value, now)
            rest = [c for c in moved(a, b, subject) if c.fact != fact.name]
            results.append((subject, [time, *rest] if now != old.value else rest))
    return results
