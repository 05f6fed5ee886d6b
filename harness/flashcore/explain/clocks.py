"""Checks bench's cold times against ncu's durations of the same cases.

``cold_p50`` includes a launch and the gaps between a case's kernels. ncu's duration is the sum over its kernels, each
measured after a cache flush, possibly at another clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flashcore.explain.roofline import case_bounds
from flashcore.model.causes import NcuDisagrees, OverReference
from flashcore.model.record import Fact, Facts, Record, Source, Subject

#: How far the two times may differ: a factor, and µs per kernel (a launch takes at most 1 µs).
TOLERANCE, TOLERANCE_US = 1.25, 2.0


def agreed(record: Record) -> Record:
    """Returns the record with the times, and their ratios, of cases whose clocks disagree marked as unmeasured.

    A time below its floor stays, so that the gate fails it.
    """
    doubts = dict(_doubts(record.facts))
    if not doubts:
        return record
    for bounds in case_bounds(record):
        if any(gap.is_impossible for gap in bounds.gaps):
            doubts.pop(bounds.subject, None)
    cases = {subject.case for subject in doubts}
    return replace(
        record,
        facts=Facts(_confirmed(fact, doubts) for fact in record.facts),
        samples={name: s for name, s in record.samples.items() if name.rpartition("/")[0] not in cases},
    )


def _doubts(facts: Facts) -> Iterator[tuple[Subject, NcuDisagrees]]:
    """Yields the cases whose clocks disagree, each with the cause."""
    for fact in facts.named("ncu_duration"):
        subject, ncu = fact.subject, fact.number
        cold = facts.number("cold_p50", subject)
        if subject.kernel is not None or subject.launch is not None or ncu is None or cold is None:
            continue
        ncu_clock, bench_clock = facts.number("sm_clock", subject), facts.number("bench_sm_clock", subject)
        scaled = ncu * ncu_clock / (bench_clock * 1e6) if ncu_clock and bench_clock else ncu
        least, most = (end(ncu, scaled) / 1e3 for end in (min, max))
        slack = TOLERANCE_US * (facts.number("kernel_launches", subject) or 1)
        if not least / TOLERANCE - slack <= cold <= most * TOLERANCE + slack:
            yield subject, NcuDisagrees(cold, ncu / 1e3, TOLERANCE - 1, slack)


def _confirmed(fact: Fact, doubts: dict[Subject, NcuDisagrees]) -> Fact:
    """The fact, without its value if its times are in doubt."""
    if fact.source is not Source.EVENTS or fact.value is None:
        return fact
    cause = doubts.get(fact.subject)
    if cause is None and isinstance(fact.detail, OverReference):
        cause = doubts.get(Subject(fact.detail.reference, shape=fact.subject.shape))
    return fact if cause is None else replace(fact, value=None, detail=cause)
