"""Two clocks must agree: bench's events, and ncu's own duration of the same case.

Both are cold: ``cold_p50`` holds a launch and what lies between a case's kernels; ncu's duration is the sum over its
kernels, each with the caches flushed before it, at a clock that may be another. In the run 20261122T201621Z-c175 on
H200s (149 cases) ncu's was 4 % below to 18 % above of single kernels, and 19 % below to 35 % above of peers and of
cases of several kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flashcore.explain.roofline import case_bounds
from flashcore.model.causes import NcuDisagrees, OverReference
from flashcore.model.record import Fact, Facts, Record, Source, Subject

#: How far the clocks may differ, relative and in us for each kernel: a launch takes at most 1 us (measured).
APART, APART_US = 1.25, 2.0
#: A time this far below its floor is a failed measurement; measured roofs vary by so much.
LEAST_OF_FLOOR = 0.95


def agreed(record: Record) -> Record:
    """The record, in which the times of every case whose clocks disagree, and ratios made of them, are unmeasured. A
    time below its floor stays as it is: the gate fails it."""
    doubts = dict(_doubts(record.facts))
    if not doubts:
        return record
    for bounds in case_bounds(record):
        if any(gap.ratio < LEAST_OF_FLOOR for gap in bounds.gaps):
            doubts.pop(bounds.subject, None)
    cases = {subject.case for subject in doubts}
    return replace(
        record,
        facts=Facts(_held_back(fact, doubts) for fact in record.facts),
        samples={name: s for name, s in record.samples.items() if name.rpartition("/")[0] not in cases},
    )


def _doubts(facts: Facts) -> Iterator[tuple[Subject, NcuDisagrees]]:
    """Cases whose clocks disagree, and how."""
    for fact in facts.named("ncu_duration"):
        subject, ncu = fact.subject, fact.number
        cold = facts.number("cold_p50", subject)
        if subject.kernel is not None or subject.launch is not None or ncu is None or cold is None:
            continue
        theirs, own = facts.number("sm_clock", subject), facts.number("bench_sm_clock", subject)
        scaled = ncu * theirs / (own * 1e6) if theirs and own else ncu
        least, most = (end(ncu, scaled) / 1e3 for end in (min, max))
        slack = APART_US * (facts.number("kernel_launches", subject) or 1)
        if not least / APART - slack <= cold <= most * APART + slack:
            yield subject, NcuDisagrees(cold, ncu / 1e3, APART - 1, slack)


def _held_back(fact: Fact, doubts: dict[Subject, NcuDisagrees]) -> Fact:
    if fact.source is not Source.EVENTS or fact.value is None:
        return fact
    cause = doubts.get(fact.subject)
    if cause is None and isinstance(fact.detail, OverReference):
        cause = doubts.get(Subject(fact.detail.reference, shape=fact.subject.shape))
    return fact if cause is None else replace(fact, value=None, detail=cause)
