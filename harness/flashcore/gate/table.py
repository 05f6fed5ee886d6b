"""A judgement as plain text for the terminal: what failed first, the sum last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flashcore.errors import Exit
from flashcore.gate.judge import Judgement, Verdict, WaiverUse
from flashcore.model.gate_policy import PREFIX
from flashcore.model.text import number

_SHOWN = 12  # subjects of one group that are listed before the rest is counted


def table(judgement: Judgement) -> str:
    """The judgement as plain text, what failed first and the sum last."""
    parts = [
        _group("FAILED", [v for v in judgement.limits if v.status == "fail"]),
        _gaps(f"UNMEASURED, required by --require {judgement.require}", judgement.limits, required=True),
        _group("waived", [v for v in judgement.limits if v.status == "waived"]),
        _waivers(judgement.waivers),
        _loosened(judgement),
        _gaps("unmeasured, not required", judgement.limits, required=False),
        _goals(judgement.goals),
        _passes(judgement.limits),
        [f"note: {n}" for n in judgement.notes],
    ]
    return "\n\n".join(["\n".join(p) for p in parts if p] + [summary(judgement)])


def summary(judgement: Judgement) -> str:
    """One line: the outcome, the counts, the exit code."""
    counts = judgement.counts()
    words = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: "COULD NOT JUDGE"}
    word = words.get(judgement.exit_code, "UNMEASURED")
    named = [
        f"{counts.get('fail', 0)} failed",
        f"{counts.get('waived', 0)} waived",
        f"{counts.get('pass', 0)} passed",
        f"{counts.get('unmeasured', 0)} unmeasured ({judgement.missing} of them required)",
    ]
    reached = judgement.counts("goal")
    goals = f"; {reached.get('pass', 0)} of {len(judgement.goals)} goals reached" if judgement.goals else ""
    out = f"; {judgement.left_out} unsupported left out" if judgement.left_out else ""
    return f"gate {word}: {', '.join(named)}{goals}{out} (exit {int(judgement.exit_code)})"


def _group(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """What is the same on several shapes is one row, so that it does not bury another failure; the title
    counts them all."""
    groups: dict[tuple[object, ...], list[Verdict]] = {}
    for v in verdicts:
        s = v.subject
        same = (v.budget, replace(s, shape=None), s.shape is None, v.value, v.unit, v.limit, v.reason or v.source)
        groups.setdefault(same, []).append(v)
    rows = []
    for own in groups.values():
        v = own[0]
        more = f" and {len(own) - 1} more shape{'s' if len(own) > 2 else ''}" if len(own) > 1 else ""
        value = number(v.value, v.unit) if v.unit else ""
        rows.append((v.budget, f"{v.subject}{more}", value, v.limit, v.reason or v.source))
    hidden = sum(len(own) for own in [*groups.values()][4 * _SHOWN :])
    shown = rows[: 4 * _SHOWN]
    return [f"{title} ({len(verdicts)})", *_columns(shown, len(shown) + hidden)] if rows else []


def _gaps(title: str, verdicts: Sequence[Verdict], *, required: bool) -> list[str]:
    """Gaps by budget and reason: one missing machine makes hundreds that are all the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for v in verdicts:
        if v.status == "unmeasured" and v.required == required:
            groups.setdefault((v.budget, v.reason), []).append(str(v.subject))
    rows = []
    for (budget, reason), subjects in groups.items():
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        rows.append((budget, subjects[0] + more, reason))
    return [f"{title} ({sum(map(len, groups.values()))})", *_columns(rows, len(rows))] if rows else []


def _waivers(uses: Sequence[WaiverUse]) -> list[str]:
    lines = []
    for use in uses:
        w = use.waiver
        if use.state == "not needed":
            lines.append(f"waiver no longer needed: {w.budget} on {', '.join(w.variants)} ({w.reason})")
        elif use.state == "expired":
            lines.append(f"waiver expired on {w.expires}: {w.budget} on {', '.join(w.variants)} ({w.reason})")
    return lines


def _loosened(judgement: Judgement) -> list[str]:
    """All that the manifest loosens, with its reason."""
    rows = []
    for use in judgement.loosened:
        w = use.waiver
        until = f"until {w.expires}" if w.expires else ""
        where = ", ".join(w.variants) if w.variants != ("*",) else "all variants"
        rows.append((w.budget, where, f"accepted {number(w.accepted)}", w.reason, until))
    lines = _columns(rows, len(rows)) + [f"  {text}" for text in judgement.relaxed]
    return [f"loosened in the manifest ({len(lines)})", *lines] if lines else []


def _goals(verdicts: Sequence[Verdict]) -> list[str]:
    """One line a goal: how many subjects reached it, and the one that is farthest from it."""
    by_name: dict[str, list[Verdict]] = {}
    for v in verdicts:
        by_name.setdefault(v.budget, []).append(v)
    rows = []
    for name, own in by_name.items():
        if name.startswith(PREFIX) and all(v.status == "pass" for v in own):
            continue  # what is only shown is of interest when it moves
        known = [v for v in own if v.progress is not None]
        reached = sum(v.status == "pass" for v in known)
        text = f"reached by {reached} of {len(own)}"
        if len(known) < len(own):
            text += f", {len(own) - len(known)} unmeasured"
        remark = "" if known else own[0].reason
        if reached < len(known):
            worst = min(known, key=lambda v: v.progress or 0.0)
            way = f"{100 * (worst.progress or 0.0):.0f} % of the way"
            remark = f"farthest: {worst.subject}, {number(worst.value, worst.unit)}, {way}"
        rows.append((name, own[0].limit, text, remark))
    return [f"goals ({len(rows)})", *_columns(rows, len(rows))] if rows else []


def _line_of(verdict: Verdict) -> str:
    """A baseline's facts pass as one."""
    return "baseline" if verdict.budget.startswith(PREFIX) else verdict.budget


def _passes(verdicts: Sequence[Verdict]) -> list[str]:
    total = Counter(_line_of(v) for v in verdicts)
    passed = Counter(_line_of(v) for v in verdicts if v.status == "pass")
    rows = [(name, f"{count} of {total[name]}") for name, count in passed.items()]
    return [f"passed ({sum(passed.values())})", *_columns(rows, len(rows))] if rows else []


def _columns(rows: Sequence[Sequence[str]], count: int) -> list[str]:
    """Aligned rows; ``count`` is how many there would be."""
    if not rows:
        return []
    cells = [[c.splitlines()[0] if c else "" for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return lines + ([f"  … and {count - len(rows)} more"] if count > len(rows) else [])
