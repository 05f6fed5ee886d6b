"""Compares two records, or two cases of one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from flashcore.explain.comparison import Change, Comparison, Difference, Evidence, Outcome, Side, size
from flashcore.explain.pairs import KernelIdentity, paired
from flashcore.explain.times import Speedup, speedup
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, GROUP_STAGE
from flashcore.model.causes import OTHER_RUNS, PROFILED
from flashcore.model.groups import grouped
from flashcore.model.record import CaseSubject, CodeSubject, Fact, Facts, Record, Subject, Time, Value, subject_of
from flashcore.model.suite import TIMING_MODES, Binary
from flashcore.model.text import count

MODES = (*TIMING_MODES, "eager")
#: Times of launches that a tool measured, without samples: the times of imported kernels.
DURATIONS = ("ncu_duration", "traced_duration")
#: A case's time is one of the first group that has any, whatever else changed.
_TIMES = (TIMING_MODES, ("eager",), DURATIONS)
_TIME_FACTS = (*(f"{mode}_p50" for mode in MODES), *DURATIONS)
_Codes = Mapping[CodeSubject, Value | None]
MOVED = 0.05  # the smallest shown change of a counter, as a share of the larger value
MOST_MOVED = 5


def compare(a: Record, b: Record) -> Comparison:
    """Compares two records, ``a`` as the earlier side. Identical shapes are one row.

    Times compare only if both are of one suite and GPU model; those of imported kernels always.
    """
    incomparable = comparable(a, b) if a.suite.name != b.suite.name or _timed(a) or _timed(b) else ""
    old, olds = aligned(a, b)
    was, now = _codes(old), _codes(b)
    rows = [*_changed_code(old, b, olds, was, now), *_cases(a, b, only_imported=bool(incomparable))]
    both = now.keys() & was.keys()
    alike = sum(now[s] == was[s] for s in both), len(both)
    return Comparison(Side.of(a), Side.of(b), rows, tuple(_notes(a, b, incomparable)), alike, incomparable)


def comparable(a: Record, b: Record) -> str:
    """Why the times of two records must not be shown together; empty if they may be."""
    if a.suite.name != b.suite.name:
        return f"of suite {a.suite.name}, not {b.suite.name}"
    if a.gpu is None and b.gpu is None and b.suite.is_imported:
        one, other = a.environment.host, b.environment.host
        return "" if one == other else f"measured on {one}, not {other}"
    if a.gpu is None or b.gpu is None:
        return f"{'both were' if a.gpu == b.gpu else 'one of the two was'} recorded without a GPU"
    return "" if a.gpu == b.gpu else f"measured on {a.gpu}, not {b.gpu}"


def _notes(a: Record, b: Record, incomparable: str) -> Iterator[str]:
    """Why the comparison may mislead, and the builds that began or ceased to fail."""
    for name in ("nvcc", "ncu", "driver"):
        was, now = getattr(a.environment, name), getattr(b.environment, name)
        if was != now:
            was, now = was or "not recorded", now or "not recorded"
            yield f"{name} {was} before, {now} after: differences may be its own"
    if incomparable:
        yield f"times are not comparable: {incomparable}"
    before, after = ({f"{x.variant} for {x.arch}" for x in r.artifacts if x.status == "failed"} for r in (a, b))
    for build in sorted(before ^ after):
        yield f"{build} does not build {'after' if build in after else 'before'}"


# --- cases ------------------------------------------------------------------------------------------


def case(
    a: Record, before: CaseSubject, b: Record, after: CaseSubject, *, with_counters: bool = True
) -> Difference | None:
    """What changed from a case of ``a`` to one of ``b``, or of the same record; ``None`` without a time of both.

    The mode that ranks decides if its time changed, else the mode that changed most. The counters that changed most
    follow, unless both ran the same machine code or took the same time.
    """
    changes = list(_times(a, before, b, after))
    if not changes:
        return None
    ranks = _rank_by(b, after)
    group = next(of for of in _TIMES if any(c.mode in of for c in changes))
    same = all(c.outcome == "no difference" for c in changes if c.mode in group)
    changes.sort(
        key=lambda c: (c.mode not in group, not same and c.outcome == "no difference", c.mode != ranks, -c.size)
    )
    code, imported = same_code(a, before, b, after), b.suite.variants[after.variant].imported
    needed = with_counters and not code and (imported or not same)
    counters = moved(a, b, after, before) if needed else []
    outcome: Outcome = "changed" if same and counters else changes[0].outcome
    return Difference(after, outcome, (*changes, *counters), same_code=code, shapes=(after.shape or "",))


def _cases(a: Record, b: Record, only_imported: bool) -> Iterator[Difference]:
    """A row for each variant on identical shapes, whatever these are called, that one of the records times."""
    was, now = _timed(a), _timed(b)
    for key in {**now, **was}:
        before, after = was.get(key, []), now.get(key, [])
        record, subjects = (b, after) if after else (a, before)
        if only_imported and not record.suite.variants[subjects[0].variant].imported:
            continue
        shapes = tuple(s.shape or "" for s in subjects)
        if before and after:
            same_name = ((x, y) for y in after for x in before if x.shape == y.shape)
            one, other = next(same_name, (before[0], after[0]))
            if row := case(a, one, b, other):
                yield replace(row, shapes=shapes)
        else:
            facts = (record.facts.get(name, subjects[0]) for name in _names(record, subjects[0]))
            fact = next(fact for fact in facts if fact and fact.number)
            lead = change(fact, None if after else fact.value, fact.value if after else None)
            lead = replace(lead, evidence=None)
            yield Difference(subjects[0], lead.outcome, (lead,), shapes=shapes)


def _rank_by(record: Record, subject: CaseSubject) -> str:
    shape = record.suite.shapes.get(subject.shape or "")
    return shape.rank_by if shape else ""


def _names(record: Record, subject: CaseSubject) -> list[str]:
    """The facts of a case's times, that of the mode that ranks first."""
    ranks = _rank_by(record, subject)
    return [*(f"{mode}_p50" for mode in sorted(MODES, key=lambda mode: mode != ranks)), *DURATIONS]


def _timed(record: Record) -> dict[Hashable, list[CaseSubject]]:
    """The cases with a time, by variant and by what they compute."""
    suite, facts = record.suite, record.facts
    timed = {f.subject for name in _TIME_FACTS for f in facts.named(name) if f.number and f.subject.kernel is None}
    cases = ((v, s, CaseSubject(Case(v, s.name))) for v in suite.variants for s in suite.shapes.values())
    return grouped(((v, suite.computation(s)), subject) for v, s, subject in cases if subject in timed)


def lost_times(a: Record, b: Record) -> bool:
    """Whether a case of both records has a time of some mode in the earlier one only."""
    was, now = _timed(a), _timed(b)
    return any(
        any(a.facts.number(name, s) for s in was[key]) and not any(b.facts.number(name, s) for s in now[key])
        for key in was.keys() & now.keys()
        for name in _TIME_FACTS
    )


def _times(a: Record, before: CaseSubject, b: Record, after: CaseSubject) -> Iterator[Change]:
    """The change of each time that both have."""
    for mode in MODES:
        if change := time_change(a.time(before, mode), b.time(after, mode)):
            yield change
    for name in DURATIONS:
        was, fact = a.facts.number(name, before), b.facts.get(name, after)
        if fact and was and (now := fact.number):
            ratio = Speedup(was / now, cause=PROFILED() if a.id == b.id else OTHER_RUNS())
            yield Change(after, name, fact.unit, was, now, ratio.conclusion, speedup=ratio)


def time_change(before: Time, after: Time) -> Change | None:
    """The change between two times of one mode; ``None`` if one is unmeasured."""
    ratio = speedup(before, after)
    if ratio is None:
        return None
    evidence: Evidence | None = "one run" if ratio.ends else None
    fact = f"{after.mode}_p50"
    return Change(after.subject, fact, "us", before.us, after.us, ratio.conclusion, evidence, ratio)


def same_code(a: Record, before: CaseSubject, b: Record, after: CaseSubject) -> bool:
    """Whether two cases ran the same machine code, so that any difference is noise."""
    one, other = a.keys.get(before.case), b.keys.get(after.case)
    if one is None or other is None or one.is_reference or other.is_reference:
        return False
    return bool(one.code) and (one.code, one.nvcc) == (other.code, other.nvcc)


def same_shape(a: Record, b: Record, shape: str) -> bool:
    one, other = a.suite.shapes.get(shape), b.suite.shapes.get(shape)
    return one is not None and other is not None and one.params == other.params


def moved(
    a: Record, b: Record, subject: Subject, before: Subject | None = None, most: int | None = MOST_MOVED
) -> list[Change]:
    """The counters of a case that differ the most: possible causes of a changed time.

    Args:
        before: the case of ``a``, if it differs from ``subject``.
    """
    results = []
    for fact in b.facts.about(subject):
        spec = FACTS.get(fact.name)
        if spec is None or spec.tier != "counters" or spec.group in GROUP_STAGE or fact.name in DURATIONS:
            continue
        was = a.facts.number(fact.name, before or subject)
        if size(was, fact.number, fact.unit) > MOVED:
            results.append(replace(change(fact, was, fact.number), evidence=None))
    return sorted(results, key=lambda change: (-change.size, change.fact))[:most]


# --- code -------------------------------------------------------------------------------------------


def changes(a: Record, b: Record) -> list[Change]:
    """The static facts whose values differ between ``a`` and ``b``, in the order of ``b``.

    The comparison is valid within one nvcc release only. A kernel with another name now has its present one.
    """
    return _changes(aligned(a, b)[0], b)


def _changes(earlier: Record, b: Record) -> list[Change]:
    before, after = static_facts(earlier), static_facts(b)
    results = []
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        was, now = old.value if old else None, new.value if new else None
        if was != now and (fact := new or old):
            results.append(change(fact, was, now))
    return results


def _changed_code(
    old: Record, b: Record, olds: Mapping[Subject, Subject], was: _Codes, now: _Codes
) -> Iterator[Difference]:
    """A row for each kernel or build with other facts or other machine code; of a variant that only one side has, one
    row for all its kernels.

    Args:
        old, olds: see :func:`aligned`.
        was, now: see :func:`_codes`.
    """
    before, after = ({_code(s) for _, s in static_facts(r)} | codes.keys() for r, codes in ((old, was), (b, now)))
    # The amounts of a shape that only one side has are no change.
    facts = [c for c in _changes(old, b) if c.subject.arch or None not in (c.before, c.after)]
    changed = grouped((_code(c.subject), c) for c in facts)
    changed |= {s: [] for s, code in now.items() if was.get(s, code) != code and s not in changed}
    lone = set() if _is_of_files(old) and _is_of_files(b) else _variants(before) ^ _variants(after)
    for variant, compiled in grouped((s.variant, s) for s in changed if s.variant in lone and s.arch).items():
        outcome: Outcome = "gone" if variant in _variants(before) else "new"
        kernels = sum(s.kernel is not None for s in compiled)
        yield Difference(CodeSubject(variant), outcome, reason=count(kernels, "kernel"))
    for subject, of in changed.items():
        if subject.variant not in lone:
            earlier = olds[subject].kernel or "" if subject in olds else ""
            row = _of_kernel(subject, of, subject in before, subject in after)
            yield row if earlier == subject.kernel else replace(row, was=earlier)


def _of_kernel(subject: Subject, facts: Sequence[Change], before: bool, after: bool) -> Difference:
    """The row of a kernel or build by its changed facts, and whether it is there before and after."""
    facts = sorted(facts, key=lambda c: c.importance)
    if not (before and after):
        return Difference(subject, "gone" if before else "new", tuple(c for c in facts if c.is_important))
    if not facts:
        return Difference(subject, "changed", reason="other machine code")
    # A fact of a kernel on both sides that is unmeasured now counts as worse.
    unmeasured: dict[Outcome, Outcome] = {"gone": "worse", "new": "changed"}
    return Difference(subject, unmeasured.get(facts[0].outcome, facts[0].outcome), tuple(facts))


def _code(subject: Subject) -> CodeSubject:
    """The kernel or build of a static fact."""
    return CodeSubject(subject.variant, subject.arch, kernel=subject.kernel)


def _variants(subjects: set[CodeSubject]) -> set[str]:
    return {subject.variant for subject in subjects}


def _codes(record: Record) -> _Codes:
    """The hashes of the machine code: of each kernel, else of each build."""
    kernels = {_code(f.subject): f.value for f in record.facts.named("code")}
    return kernels or {CodeSubject(x.variant, x.arch): x.code for x in record.artifacts if x.code}


def aligned(a: Record, b: Record) -> tuple[Record, dict[Subject, Subject]]:
    """``a`` with its compiled kernels named as in ``b``; and those of another name or file in ``b``, by their subject
    there."""
    before, after = _kernels(a), _kernels(b)
    files = {variant: variant for variant, _ in after}
    if _is_of_files(a) and _is_of_files(b):
        old, new = _files(before), _files(after)
        files = {new[0].name: old[0].name} if len(old) == len(new) == 1 else paired(old, new)
    olds = {
        CodeSubject(variant, arch, kernel=name): CodeSubject(files[variant], arch, kernel=was)
        for (variant, arch), kernels in after.items()
        if variant in files
        for name, was in paired(before.get((files[variant], arch), ()), kernels).items()
    }
    names = {old: name for name, old in olds.items() if name != old}

    def renamed(fact: Fact) -> Fact:
        name = names.get(_code(fact.subject))
        if name is None:
            return fact
        s = fact.subject
        return replace(fact, subject=subject_of(name.variant, s.shape, name.kernel, s.launch, s.arch))

    return replace(a, facts=Facts(map(renamed, a.facts))) if names else a, {name: old for old, name in names.items()}


def _is_of_files(record: Record) -> bool:
    return all(isinstance(variant.kind, Binary) for variant in record.suite.variants.values())


def _files(kernels: Mapping[tuple[str, str], Sequence[KernelIdentity]]) -> list[KernelIdentity]:
    """Compiled files, to be paired by their kernels."""
    places = grouped((file, (arch, kernel.name)) for (file, arch), of in kernels.items() for kernel in of)
    return [KernelIdentity(file, values=frozenset(of)) for file, of in places.items()]


def _kernels(record: Record) -> dict[tuple[str, str], list[KernelIdentity]]:
    """The compiled kernels of each variant and arch."""
    of_files = _is_of_files(record)
    facts = grouped((f.subject, f) for f in record.facts if f.subject.arch and f.subject.kernel and not f.subject.shape)
    return grouped(
        (
            (s.variant, s.arch or ""),
            KernelIdentity(
                s.kernel or "",
                next((str(f.value) for f in of if f.name == "code"), ""),
                frozenset((f.name, f.value) for f in of if f.value and not of_files),  # unrelated ones share some
            ),
        )
        for s, of in facts.items()
    )


def static_facts(record: Record) -> dict[tuple[str, Subject], Fact]:
    """The facts that :func:`changes` compares, by name and subject."""
    return {
        (f.name, f.subject): f
        for f in record.facts
        if (spec := FACTS.get(f.name)) is not None
        and "static" in (spec.tier, spec.group)
        # Most changes of code change other facts too; a line number changes with every comment above it.
        and f.name not in ("code", "local_memory_site")
    }


def change(fact: Fact, was: Value | None, now: Value | None) -> Change:
    """The change of a fact from one value to another."""
    return Change(fact.subject, fact.name, fact.unit, was, now, _outcome(fact.name, was, now), "exact")


def _outcome(name: str, was: Value | None, now: Value | None) -> Outcome:
    if was is None or now is None:
        return "new" if was is None else "gone"
    better = FACTS[name].better
    if not better or isinstance(was, str) or isinstance(now, str):
        return "changed"
    return "better" if (now < was) == (better == "lower") else "worse"
