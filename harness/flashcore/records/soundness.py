"""Validates a record: values and units against the catalogue of facts, subjects and names against the suite."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date

from flashcore.model.case import Case
from flashcore.model.catalogue import spec_of
from flashcore.model.cause import Detail
from flashcore.model.causes import IMPOSSIBLE, VoidTiming
from flashcore.model.record import Fact, Facts, Record, Source, Subject, Value
from flashcore.model.text import shortened

#: Larger than any counter, size or rate, and small enough that sums and ratios stay finite.
MOST = 1e30
_KERNEL, _LAUNCH = (str, type(None)), (int, type(None))
#: Names of suites, problems, shapes and variants, which become file names.
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


def complaint(value: Value | None, unit: str) -> str:
    """The expected form of a value in that unit if the value is not valid; else empty."""
    if value is None or (type(value) is bool and unit == "1"):
        return ""
    if unit == "text":
        return "" if type(value) is str else "text"
    if type(value) is not int and type(value) is not float:
        return f"a number of {unit}"
    if not -MOST <= value <= MOST:  # rejects NaN too, and integers too large for a float
        return f"a finite number of {unit}"
    return "at least 0" if value < 0 and unit != "C" else ""


def is_time(us: float) -> bool:
    """Whether it can be a time in µs."""
    return bool(us) and not complaint(us, "us")


def measured(fact: Fact) -> tuple[Value | None, Detail | str]:
    """The value and detail to store. An impossible value is stored as unmeasured, with its text in the cause.

    Raises:
        ValueError: there is neither a value nor a cause.
    """
    if expected := complaint(fact.value, fact.unit):
        return None, IMPOSSIBLE(expected, shortened(fact.value))
    if fact.value is None and fact.cause is None:
        raise ValueError(f"{fact.name} of {fact.subject}: expected the cause of a missing value, found none")
    return fact.value, fact.detail


def mistakes(record: Record) -> Iterator[str]:
    """Messages about impossible content of a record, facts excepted."""
    suite = record.suite
    for what, table in (("problem", suite.problems), ("shape", suite.shapes), ("variant", suite.variants)):
        if not table or any(n != entry.name or not NAME.fullmatch(n) for n, entry in table.items()):
            yield f"suite: expected {what}s under their names, such as `fast_2`, found {shortened(list(table))}"
    predicted = ((p.fact, "") for v in suite.variants.values() for p in v.predictions)
    for fact, tier in (*((b.fact, b.tier) for b in suite.budgets), *predicted):
        if (spec := spec_of(fact)) is None:
            yield f"suite: expected budgets and predictions of facts in the catalogue, found {shortened(fact)}"
        elif tier and tier != spec.tier:
            tiers = f"its tier, {spec.tier}, found {shortened(tier)}"
            yield f"suite: expected budgets of the fact {shortened(fact)} to have {tiers}"
    for day in filter(None, {*(w.expires for w in suite.waivers), *(r.expires for r in suite.gate.rules)}):
        try:
            date.fromisoformat(day)
        except ValueError:
            yield f"suite: expected a day such as 2027-01-31, found {shortened(day)}"
    if not {entry.problem for table in (suite.variants, suite.shapes) for entry in table.values()} <= {*suite.problems}:
        yield f"suite: expected variants and shapes of the problems {shortened(list(suite.problems))}, found others"
    cases = {*record.keys, *record.stale, *(case for case, _ in record.raw_samples)}
    cases |= {o.case for o in record.outcomes} | {p.case for p in record.plans}
    cases |= {Case(a.variant, next(iter(suite.shapes), "")) for a in record.artifacts}
    for case in sorted(cases - {Case(v, s) for v in suite.variants for s in suite.shapes}):
        yield f"expected cases of the suite's variants and shapes, found {shortened(str(case))}"
    ran = [(o.case, o.stage) for o in record.outcomes if o.status in ("ok", "failed")]
    if len({*ran}) < len(ran) or not record.stale.keys().isdisjoint(case for case, _ in ran):
        yield "outcomes: expected one of each case and stage, and none of what is stale, found others"
    timed = {
        o.case for o in record.outcomes if o.stage == "bench" and (o.status == "ok" or isinstance(o.cause, VoidTiming))
    }
    for (case, mode), series in record.raw_samples.items():
        key = shortened(f"{case}/{mode}")
        if case not in timed:
            yield f"samples of {key}: expected the outcome of a bench that timed {case}, found none"
        if not all(map(is_time, series)):
            yield f"samples of {key}: expected times in µs, above 0, found others"


def mistakes_in_facts(record: Record, facts: Sequence[Fact] | Facts) -> Iterator[str]:
    """Messages about impossible facts.

    Args:
        record: its run; only the header's content is used.
    """
    suite = record.suite
    archs = {None, *suite.archs, *(a.arch for a in record.artifacts)}
    shapes = {None, *suite.shapes}
    units = {n: spec.unit for n in {f.name for f in facts} if isinstance(n, str) and (spec := spec_of(n))}
    by_subject: dict[Subject, set[str]] = {}
    last, names = None, set[str]()
    of_suite = is_unnamed = is_placed = False
    for fact in facts:
        name, s, unit = fact.name, fact.subject, units.get(fact.name)
        if s is not last:  # a subject's facts are consecutive: one lookup for all of them
            last, names = s, by_subject.setdefault(s, set())
            of_suite, is_unnamed = s.variant in suite.variants, s.variant == "" and bool(s.kernel)
            is_placed = s.shape in shapes and s.arch in archs
            is_placed = is_placed and type(s.kernel) in _KERNEL and type(s.launch) in _LAUNCH
        if name in names:
            yield f"fact {shortened(name)} of {s}: expected one value, found two"
        names.add(name)
        by_ncu = fact.source in (Source.NCU, Source.CUPTI)
        # An ncu metric may have any unit, and so may a fact of an extension that is not installed.
        any_unit = not unit and isinstance(name, str) and ((unit == "" and by_ncu) or NAME.fullmatch(name))
        if any_unit and isinstance(fact.unit, str):
            unit = fact.unit
        if not (is_placed and (of_suite or (is_unnamed and by_ncu))):  # a captured kernel needs no variant
            what = "a variant, shape and arch of the suite, a kernel's name and a launch's number"
            yield f"fact {name} of {shortened(s)}: expected {what}, found another"
        elif not unit or fact.unit != unit:
            what = f"the unit {unit}" if unit else "a name from the catalogue, or an ncu metric"
            other = shortened(fact.unit if unit else name)
            yield f"fact {shortened(name)} of {s}: expected {what}, found {other}"
        elif expected := complaint(fact.value, unit):
            yield f"fact {name} of {s}: expected {expected}, found {shortened(fact.value)}"
        elif (fact.value is None) is (fact.cause is None) or not isinstance(fact.detail, Detail | str):
            yield f"fact {name} of {s}: expected either a value or a cause, found {shortened(fact.detail)}"
