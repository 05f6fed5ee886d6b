"""The kernels of two versions of compiled files side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flashcore.explain import diff
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.record import Facts, Record
from flashcore.model.suite import Binary

#: From the most important change of a kernel to the least: a kernel is worse if the most important one is.
_RANKS = {"spill_store_bytes": 0, "spill_load_bytes": 1, "registers": 3, "code_bytes": 5}
_ORDER = ("worse", "appeared", "vanished", "changed", "better")


def are_all(record: Record) -> bool:
    """Whether all the record's variants are compiled files."""
    return all(isinstance(variant.kind, Binary) for variant in record.suite.variants.values())


def text(a: Record, b: Record, most: int | None = None) -> str:
    """The kernels that differ, the worst first, at most ``most``. A kernel on one side only appeared or vanished,
    unless the other side has its code under another name."""
    codes, now = ({f.subject: f.value for f in record.facts.named("code")} for record in (a, b))
    new = {(s.variant, s.arch, code): s for s, code in now.items() if s not in codes}
    moved = {(s, new.get((s.variant, s.arch, code), s)) for s, code in codes.items() if s not in now}
    names = {old: name for old, name in moved if old != name}
    a = replace(a, facts=Facts(replace(f, subject=names.get(f.subject, f.subject)) for f in a.facts))
    same = sum(names.get(s, s) in now and now[names.get(s, s)] == code for s, code in codes.items())
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
    alike = f"{same} of the same code" + (f" ({len(names)} renamed)" if names else "")
    lines = [f"kernels: {len(before)} before, {len(after)} after, {alike}; {counted or 'no difference'}"]
    lines += [f"  {line}" for *_, line in rows[:most]]
    return "\n".join([*lines, *([f"  … and {len(rows) - most} more"] if most is not None and len(rows) > most else [])])


def _rank(change: diff.Change) -> tuple[int, float]:
    """The more important fact first, then the one that changed the most."""
    was, now = (value if isinstance(value, (int, float)) else 0 for value in (change.before, change.after))
    gains = FACTS[change.fact].better == "higher"  # such as tensor-core instructions
    return 2 if gains else _RANKS.get(change.fact, 4), -abs(now - was)


def _words(change: diff.Change) -> str:
    return f"{change.fact} {change.text}"
