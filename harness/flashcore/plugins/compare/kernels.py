"""The kernels of two versions of compiled files side by side."""

from __future__ import annotations

from collections import Counter

from flashcore.explain import diff
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.record import Record
from flashcore.model.suite import Binary

#: From the most important change of a kernel to the least: a kernel is worse if the most important one is.
_RANKS = {"spill_store_bytes": 0, "spill_load_bytes": 1, "registers": 3, "code_bytes": 5}
_ORDER = ("worse", "appeared", "vanished", "changed", "better")


def are_all(record: Record) -> bool:
    """Whether the record is of compiled files only."""
    return all(isinstance(variant.kind, Binary) for variant in record.suite.variants.values())


def text(a: Record, b: Record, most: int | None = None) -> str:
    """The kernels that differ, the worst first, at most so many; a kernel of one side only appeared or vanished."""
    before, after = ({f.subject for f in record.facts if f.subject.kernel} for record in (a, b))
    rows = []
    for subject, changes in grouped((c.subject, c) for c in diff.changes(a, b)).items():
        changes.sort(key=_rank)
        first = changes[0]
        if lone := "appeared" if subject not in before else "vanished" if subject not in after else "":
            changes = [c for c in changes if c.fact in _RANKS]
        # Of a kernel on both sides, a fact that is unmeasured now counts as worse.
        how = lone or {"vanished": "worse", "appeared": "changed"}.get(first.direction, first.direction)
        rows.append((_ORDER.index(how), _rank(first), f"{how:8}  {'; '.join(map(_words, changes))}  {subject}"))
    rows.sort(key=lambda row: row[:2])
    counts = Counter(_ORDER[row[0]] for row in rows)
    counted = ", ".join(f"{counts[how]} {how}" for how in _ORDER if how in counts)
    lines = [f"kernels: {len(before)} before, {len(after)} after; {counted or 'no difference'}"]
    lines += [f"  {line}" for *_, line in rows[:most]]
    return "\n".join([*lines, *([f"  … and {len(rows) - most} more"] if most is not None and len(rows) > most else [])])


def _rank(change: diff.Change) -> tuple[int, float]:
    """The more important fact first, then the one that changed the most."""
    was, now = (value if isinstance(value, (int, float)) else 0 for value in (change.before, change.after))
    gains = FACTS[change.fact].better == "higher"  # such as tensor-core instructions
    return 2 if gains else _RANKS.get(change.fact, 4), -abs(now - was)


def _words(change: diff.Change) -> str:
    return f"{change.fact} {change.text}"
