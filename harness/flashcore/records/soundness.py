"""Checks of a record: values and units against the catalogue of facts, subjects and names against the suite."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from flashcore.model.catalogue import spec_of
from flashcore.model.causes import Detail, Impossible
from flashcore.model.record import Fact, Record, Source, Subject, Value
from flashcore.model.text import shortened
from flashcore.model.times import of_samples, speedup, tflops

#: No counter, size or rate comes near it; sums and ratios of smaller values stay finite.
MOST = 1e30
_SIGNED = ("C",)  # units whose values may be below 0
_ANY = "any"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")  # names become file names


def complaint(value: Value | None, unit: str) -> str:
    """Why a value is no measurement in that unit; empty if it can be one."""
    if value is None or (type(value) is bool and unit == "1"):
        return ""
    if unit == "text":
        return "" if type(value) is str else "text"
    if type(value) is not int and type(value) is not float:
        return f"a number of {unit}"
    if not -MOST <= value <= MOST:  # nor NaN; an integer may be too large for a float
        return f"a finite number of {unit}"
    return "at least 0" if value < 0 and unit not in _SIGNED else ""


def measured(fact: Fact) -> tuple[Value | None, Detail | str]:
    """The value and detail to store: an impossible value is stored as unmeasured, with what it was.

    Raises:
        ValueError: there is neither a value nor a cause.
    """
    if expected := complaint(fact.value, fact.unit):
        return None, Impossible(expected, shortened(fact.value))
    if fact.value is None and fact.cause is None:
        raise ValueError(f"{fact.name} of {fact.subject}: expected the cause of a missing value, found none")
    return fact.value, fact.detail


def mistakes(record: Record) -> Iterator[str]:
    """What no run can have recorded, its facts left out, each with what was expected and what was found."""
    suite = record.suite
    for what, table in (("problem", suite.problems), ("shape", suite.shapes), ("variant", suite.variants)):
        if not table or any(n != entry.name or not _NAME.fullmatch(n) for n, entry in table.items()):
            yield f"suite: expected {what}s under their names, such as `fast_2`, found {shortened(list(table))}"
    facts = {*(b.fact for b in suite.budgets), *(p.fact for v in suite.variants.values() for p in v.predictions)}
    for name in sorted(f for f in facts if spec_of(f) is None):
        yield f"suite: expected budgets and predictions of facts in the catalogue, found {shortened(name)}"
    for budget in suite.budgets:
        if (spec := spec_of(budget.fact)) is not None and budget.tier != spec.tier:
            tiers = f"{shortened(budget.fact)} to have its tier, {spec.tier}, found {shortened(budget.tier)}"
            yield f"suite: expected budgets of the fact {tiers}"
    for day in filter(None, {*(w.expires for w in suite.waivers), *(r.expires for r in suite.gate.rules)}):
        try:
            date.fromisoformat(day)
        except ValueError:
            yield f"suite: expected a day such as 2027-01-31, found {shortened(day)}"
    named = {*(a.variant for a in record.artifacts), *(p.variant for p in record.plans)}
    for name in sorted({*named, *(o.variant for o in record.outcomes)} - set(suite.variants)):
        yield f"artifacts, plans, outcomes: expected variants of the suite, found {shortened(name)}"
    ran = [(o.case, o.stage) for o in record.outcomes if o.status in ("ok", "failed")]
    if len(set(ran)) < len(ran) or {case for case, _ in ran} & set(record.stale):
        yield "outcomes: expected one of each case and stage, and none of what is stale, found others"
    for key, series in record.samples.items():
        if any(complaint(x, "us") or not x for x in series):
            yield f"samples of {shortened(key)}: expected times in µs, above 0, found others"


def mistakes_in_facts(record: Record, facts: Iterable[Fact]) -> Iterator[str]:
    """What no run can have recorded as facts, each with what was expected and what was found.

    Args:
        record: of which only the header's content is used.
    """
    archs = {*record.suite.archs, *(a.arch for a in record.artifacts)}
    misplaced: dict[int, str] = {}  # one subject has many facts
    units: dict[str, str] = {}
    for fact in facts:
        name, s = fact.name, fact.subject
        if id(s) not in misplaced:
            misplaced[id(s)] = _misplaced(s, record, archs)
        if misplaced[id(s)]:
            yield f"fact {name} of {shortened(s)}: expected {misplaced[id(s)]}, found another"
            continue
        if name not in units:
            spec = spec_of(name) if isinstance(name, str) else None
            units[name] = "" if spec is None else spec.unit or _ANY
        unit = units[name]
        if unit == _ANY:  # of ncu's own name, which has whatever unit ncu gives
            unit = fact.unit if fact.source is Source.NCU and isinstance(fact.unit, str) else ""
        if not unit or fact.unit != unit:
            what = f"the unit {unit}" if unit else "a name of the catalogue, or ncu's own"
            yield f"fact {shortened(name)} of {s}: expected {what}, found {shortened(fact.unit if unit else name)}"
        elif expected := complaint(fact.value, fact.unit):
            yield f"fact {name} of {s}: expected {expected}, found {shortened(fact.value)}"
        elif (fact.value is None) is (fact.cause is None) or not isinstance(fact.detail, Detail | str):
            yield f"fact {name} of {s}: expected a cause, or else a value, found {shortened(fact.detail)}"


_OF_SAMPLES = ("_p50", "_mean", "_std", "_samples")
_RATES = ("tflops", "speedup_vs_baseline", "speedup_vs_peer")
_STORED = 1e-4  # samples are stored with four decimals of a µs


def contradictions(record: Record, facts: Sequence[Fact]) -> Iterator[str]:
    """Facts that do not follow from the record's samples, each with what was expected and what was found.

    Rates of joined cases are not compared: the times and formulas that they were made of may not be joined with them.
    """
    measured = {
        (f.subject.case, f.name): f.number
        for f in facts
        if f.source is Source.EVENTS and f.subject.shape and f.number is not None
    }
    flops = {f.subject.case: f.number for f in facts if f.name == "formula_flop"}
    joined = {o.case for o in record.outcomes if o.stage == "bench" and o.origin}
    derived: dict[tuple[str, str], float | None] = {}
    for key, series in record.samples.items():
        case, _, mode = key.rpartition("/")
        derived |= {(case, f"{mode}_{name}"): value for name, value in of_samples(series).items()}
    for (case, name), value in measured.items():
        slack = _STORED
        if name in _RATES:
            if case in joined:
                continue
            expected, least = _rate(record, case, name, flops.get(case))
            low, high = (measured.get((case, f"{name}{end}"), value) for end in ("_low", "_high"))
            slack = 2 * value * _STORED / least if low <= value <= high else -1.0
        elif name.endswith(_OF_SAMPLES):
            expected = derived.get((case, name))
        else:
            continue
        if expected is None or abs(value - expected) > slack:
            samples = f"{expected:.9g}, by its samples" if expected is not None else "samples that it follows from"
            yield f"fact {name} of {case}: expected {samples}, found {value:.9g}"


def _rate(record: Record, case: str, name: str, flop: float | None) -> tuple[float | None, float]:
    """A rate by the samples of its case, ``None`` where these are missing, and the least of the times it is made of."""
    variant, _, name_of_shape = case.rpartition("/")
    shape = record.suite.shapes[name_of_shape]
    times = {v: s for v in record.suite.variants if (s := record.samples.get(f"{v}/{shape.name}/{shape.rank_by}"))}
    if variant not in times:
        return None, 1.0
    if name == "tflops":
        return flop and tflops(flop, times[variant]), min(times[variant])
    peers = (
        [v for v in times if record.suite.variants[v].is_reference]
        if name.endswith("peer")
        else [record.suite.baseline]
    )
    reference = min((times[v] for v in peers if v in times), key=statistics.median, default=None)
    if reference is None:
        return None, 1.0
    return speedup(reference, times[variant]), min(*reference, *times[variant])


def _misplaced(s: Subject, record: Record, archs: set[str]) -> str:
    if s.variant not in record.suite.variants:
        return "a variant of the suite"
    if s.shape is not None and s.shape not in record.suite.shapes:
        return "a shape of the suite"
    if s.arch is not None and s.arch not in archs:
        return "an arch of the suite"
    named = isinstance(s.kernel, str | None) and isinstance(s.launch, int | None)
    return "" if named else "a kernel's name and the number of its launch"
