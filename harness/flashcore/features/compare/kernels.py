"""The kernels of two versions of compiled files side by side."""

from __future__ import annotations

from collections import Counter

from flashcore.explain import diff
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.record import Record

#: From the most important change of a kernel to the least: a kernel is worse if the most important one is.
_RANKS = {"spill_store_bytes": 0, "spill_load_bytes": 1, "registers": 3, "code_bytes": 5}
_ORDER = ("worse", "new", "gone", "changed", "better")


def text(a: Record, b: Record, most: int | None = None) -> str:
    """The kernels that differ, the worst first, at most ``most``. A kernel on one side only is new or gone."""
    a, olds = diff.aligned(a, b)
    codes, now = ({f.subject: f.value for f in record.facts.named("code")} for record in (a, b))
    before, after = ({f.subject for f in record.facts if f.subject.kernel} for record in (a, b))
    changed = grouped((c.subject, c) for c in diff.changes(a, b))
    changed |= {s: [] for s, code in codes.items() if s in now and now[s] != code and s not in changed}
    rows = []
    for subject, changes in changed.items():
        changes.sort(key=_rank)
        how = "new" if subject not in before else "gone" if subject not in after else "changed"
        if how != "changed":
            changes = [c for c in changes if c.fact in _RANKS]
        elif changes:
            # Of a kernel on both sides, a fact that is unmeasured now counts as worse.
            how = {"vanished": "worse", "appeared": "changed"}.get(changes[0].direction, changes[0].direction)
        words = "; ".join(f"{c.fact} {c.text}" for c in changes) or "other machine code"
        was = f" (was {olds[subject].kernel})" if subject in olds and olds[subject].kernel != subject.kernel else ""
        rank = _rank(changes[0]) if changes else (9, 0.0)
        rows.append((_ORDER.index(how), rank, f"{how:8}  {words}  {subject}{was}"))
    rows.sort(key=lambda row: row[:2])
    counts = Counter(_ORDER[row[0]] for row in rows)
    counted = ", ".join(f"{counts[how]} {how}" for how in _ORDER if how in counts)
    renamed = sum(name.kernel != old.kernel for name, old in olds.items())
    alike = f"{sum(s in now and now[s] == code for s, code in codes.items())} of the same code"
    alike += f" ({renamed} renamed)" if renamed else ""
    lines = [f"kernels: {len(before)} before, {len(after)} after, {alike}; {counted or 'the same'}"]
    lines += [f"  {line}" for *_, line in rows[:most]]
    return "\n".join([*lines, *([f"  … and {len(rows) - most} more"] if most is not None and len(rows) > most else [])])


def _rank(change: diff.Change) -> tuple[int, float]:
    """The more important fact first, then the one that changed the most."""
    was, now = (value if isinstance(value, (int, float)) else 0 for value in (change.before, change.after))
    gains = FACTS[change.fact].better == "higher"  # such as tensor-core instructions
    return 2 if gains else _RANKS.get(change.fact, 4), -abs(now - was)
