"""Compares two records.

Static facts compare exactly. Times that were taken alternately may be judged. Times of different runs are only shown,
without an interval of their ratio, because machines and days differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flashcore.explain.pairs import Kernel, paired
from flashcore.explain.times import Speedup, speedup
from flashcore.model import cause_text
from flashcore.model.catalogue import FACTS, GROUP_STAGE
from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Facts, Record, Subject, Time, Value
from flashcore.model.suite import REGIMES, Binary
from flashcore.model.text import number

Direction = Literal["worse", "better", "changed", "appeared", "vanished", "no difference"]
MODES = (*REGIMES, "eager")
MOVED = 0.05  # the smallest shown change of a counter, as a share of the larger value
MOST_MOVED = 5


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

    @property
    def share(self) -> float:
        """The change as a share of the larger value, 0 to 2; for percentages in hundreds of points. 0 unless both are
        numbers."""
        was, now = self.before, self.after
        if was is None or now is None or isinstance(was, str) or isinstance(now, str) or was == now:
            return 0.0
        return abs(now - was) / (100 if self.unit == "pct" else max(abs(was), abs(now)))


def changes(a: Record, b: Record) -> list[Change]:
    """Returns the static facts whose values differ between ``a`` and ``b``, in the order of ``b``.

    The comparison is valid within one nvcc release only. A kernel with another name now has its present one.
    """
    before, after = static_facts(aligned(a, b)[0]), static_facts(b)
    results = []
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        was, now = old.value if old else None, new.value if new else None
        if was == now:
            continue
        fact = new or old
        assert fact is not None
        results.append(change(fact, was, now))
    return results


def aligned(a: Record, b: Record) -> tuple[Record, dict[Subject, Subject]]:
    """``a`` with its compiled kernels named as in ``b``; and those of another name or file in ``b``, by their subject
    there."""
    before, after = _kernels(a), _kernels(b)
    files = {variant: variant for variant, _ in after}
    if is_of_files(a) and is_of_files(b):
        old, new = _files(before), _files(after)
        files = {new[0].name: old[0].name} if len(old) == len(new) == 1 else paired(old, new)
    olds = {
        Subject(variant, arch, kernel=name): Subject(files[variant], arch, kernel=was)
        for (variant, arch), kernels in after.items()
        if variant in files
        for name, was in paired(before.get((files[variant], arch), ()), kernels).items()
    }
    names = {old: name for name, old in olds.items() if name != old}

    def renamed(fact: Fact) -> Fact:
        s = fact.subject
        name = names.get(Subject(s.variant, s.arch, kernel=s.kernel))
        return replace(fact, subject=replace(s, variant=name.variant, kernel=name.kernel)) if name else fact

    return replace(a, facts=Facts(map(renamed, a.facts))) if names else a, {name: old for old, name in names.items()}


def is_of_files(record: Record) -> bool:
    """Whether all the record's variants are compiled files."""
    return all(isinstance(variant.kind, Binary) for variant in record.suite.variants.values())


def _files(kernels: Mapping[tuple[str, str], Sequence[Kernel]]) -> list[Kernel]:
    """Compiled files, to be paired by their kernels."""
    places = grouped((file, (arch, kernel.name)) for (file, arch), of in kernels.items() for kernel in of)
    return [Kernel(file, values=frozenset(of)) for file, of in places.items()]


def _kernels(record: Record) -> dict[tuple[str, str], list[Kernel]]:
    """The compiled kernels of each variant and arch."""
    of_files = is_of_files(record)
    facts = grouped((f.subject, f) for f in record.facts if f.subject.arch and f.subject.kernel and not f.subject.shape)
    return grouped(
        (
            (s.variant, s.arch or ""),
            Kernel(
                s.kernel or "",
                next((str(f.value) for f in of if f.name == "code"), ""),
                frozenset((f.name, f.value) for f in of if f.value and not of_files),  # unrelated ones share some
            ),
        )
        for s, of in facts.items()
    )


def static_facts(record: Record) -> dict[tuple[str, Subject], Fact]:
    """Returns the facts that :func:`changes` compares, by name and subject."""
    return {
        (f.name, f.subject): f
        for f in record.facts
        if (spec := FACTS.get(f.name)) is not None
        and "static" in (spec.tier, spec.group)
        # Most changes of code change other facts too; a line number changes with every comment above it.
        and f.name not in ("code", "local_memory_site")
    }


def change(fact: Fact, was: Value | None, now: Value | None) -> Change:
    """Returns the change of a fact from one value to another."""
    return Change(fact.subject, fact.name, fact.unit, was, now, _direction(fact.name, was, now))


def moved(
    a: Record, b: Record, subject: Subject, before: Subject | None = None, most: int | None = MOST_MOVED
) -> list[Change]:
    """Returns the counters of a case that differ the most: possible causes of a changed time.

    Args:
        before: the case of ``a``, if it differs from ``subject``.
    """
    results = []
    for fact in b.facts.of(subject.variant):
        spec = FACTS.get(fact.name)
        if fact.subject != subject or spec is None or spec.tier != "counters" or spec.group in GROUP_STAGE:
            continue
        one = change(fact, a.facts.number(fact.name, before or subject), fact.number)
        if one.share > MOVED:
            results.append(one)
    return sorted(results, key=lambda change: (-change.share, change.fact))[:most]


def _direction(name: str, was: Value | None, now: Value | None) -> Direction:
    if was is None or now is None:
        return "appeared" if was is None else "vanished"
    better = FACTS[name].better
    if not better or isinstance(was, str) or isinstance(now, str):
        return "changed"
    return "better" if (now < was) == (better == "lower") else "worse"


@dataclass(frozen=True, slots=True)
class TimeChange:
    """The change of a case's median time.

    Args:
        same_code: whether both ran the same machine code, so that any difference is noise.
    """

    subject: Subject
    mode: str
    before_us: float
    after_us: float
    speedup: Speedup
    same_code: bool

    @property
    def judged(self) -> bool:
        """Whether both were timed alternately; otherwise the ratio is only shown."""
        return self.speedup.ends is not None

    @property
    def no_interval(self) -> str:
        """Why the ratio has no interval; empty if it has one."""
        return cause_text.text(self.speedup.cause)

    @property
    def direction(self) -> Direction:
        """The conclusion of the page *Compare*."""
        concluded = self.speedup.conclusion
        return "better" if concluded == "faster" else "worse" if concluded == "slower" else concluded


def time_change(before: Time, after: Time, same_code: bool) -> TimeChange | None:
    """Returns the change between two times of one mode; ``None`` if one is unmeasured."""
    ratio = speedup(before, after)
    if ratio is None or before.us is None or after.us is None:
        return None
    return TimeChange(after.subject, after.mode, before.us, after.us, ratio, same_code)


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
