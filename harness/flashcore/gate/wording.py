"""The text of verdicts and their summary, for all outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

from flashcore.errors import Exit
from flashcore.explain import advice
from flashcore.explain.verdict import Verdict
from flashcore.explain.verdict_note import LOCAL
from flashcore.gate.judge import Judgement
from flashcore.model.groups import grouped
from flashcore.model.record import subject_of
from flashcore.model.text import abbreviated, number, visible

_NAMES = 6  # subjects that a row names
#: Characters that XML 1.0 forbids, even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def summary(judgement: Judgement) -> str:
    """One line: the outcome, the counts, the exit code."""
    if not judgement.limits:
        return "gate CHECKED NOTHING: no budget applies"
    counts = judgement.counts()
    words = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: "COULD NOT CHECK"}
    word = words.get(judgement.exit_code, "UNMEASURED")
    measured = f"{counts['fail']} failed, {counts['waived']} waived, {counts['pass']} passed"
    gaps = f"{counts['unmeasured']} unmeasured ({len(judgement.gaps)} of them required)"
    goals = ""
    if judgement.goals:
        reached = judgement.counts("goal")
        goals = f"; {reached['pass']} of {len(judgement.goals)} goals reached"
        goals += f", {reached['unmeasured']} unmeasured" if reached["unmeasured"] else ""
    out = f"; {judgement.left_out} unsupported left out" if judgement.left_out else ""
    return f"gate {word}: {measured}, {gaps}{goals}{out} (exit {int(judgement.exit_code)})"


def causes(
    verdicts: Iterable[Verdict], place_of: Callable[[Verdict], Hashable] = lambda verdict: None
) -> list[list[Verdict]]:
    """Groups verdicts of one cause and place, the worst of each first: what a kernel's local memory exceeds, or one
    value or reason, in all variants and on all archs and shapes."""

    def cause(v: Verdict) -> Hashable:
        place = place_of(v), v.subject.kernel
        if v.fact in LOCAL and v.subject.kernel and v.value is not None:
            return place
        alone = v.subject.variant if v.subject.kernel is None and v.budget != "builds" else ""
        why = "" if v.subject.kernel and v.unit and v.value is not None else v.reason or v.source
        return v.budget, place, alone, v.subject.shape is None, v.value, v.limit, why

    def rank(v: Verdict) -> tuple[bool, float]:
        return v.budget != first.budget, -(v.value if isinstance(v.value, (int, float)) else 0.0)

    groups = []
    for first, *others in grouped((cause(v), v) for v in verdicts).values():
        groups.append(sorted([first, *others], key=rank))
    return groups


def subjects(group: Sequence[Verdict]) -> str:
    """``fast/kernel, wide/kernel (sm_80, sm_90a)``; of several shapes the first, and the number of others."""
    shape = group[0].subject.shape
    names = list(
        dict.fromkeys(
            _cut(str(subject_of(v.subject.variant, shape, v.subject.kernel, v.subject.launch))) for v in group
        )
    )
    archs = ", ".join(sorted({v.subject.arch for v in group if v.subject.arch}, key=lambda arch: (len(arch), arch)))
    shapes = len({v.subject.shape for v in group}) - 1
    text = abbreviated(names, _NAMES) + (f" ({archs})" if archs else "")
    return text + (f" and {shapes} more shape{'s' * (shapes > 1)}" if shapes else "")


def _cut(text: str) -> str:
    """A long template name is cut in the middle."""
    return text if len(text) <= 120 else f"{text[:80]}…{text[-39:]}"


def budgets(group: Sequence[Verdict]) -> str:
    """The names of a group's budgets."""
    return ", ".join(dict.fromkeys(v.budget for v in group))


def identity(group: Sequence[Verdict]) -> str:
    """What identifies a group in later results: not its line's number, which changes with every edit."""
    return min(f"{v.budget} {v.subject}" for v in group)


def sentence(*group: Verdict) -> str:
    """Verdicts of one cause in words: ``fast/kernel (sm_89): registers 140, expected ≤ 128 (design 000)``."""
    verdict = group[0]
    result = f"{verdict.fact} {value_of(verdict)}".rstrip()
    statement = f"{subjects(group)}: {result}, expected: {verdict.limit} ({verdict.source})"
    fix = f"fix: {advice.sentence(verdict.advice)}" if verdict.advice else ""
    return ": ".join(filter(None, (statement, "; ".join(filter(None, (verdict.reason, fix))))))


def value_of(verdict: Verdict) -> str:
    """The verdict's value as text; empty if it has none, such as ``builds``."""
    if isinstance(verdict.value, bool) or (verdict.value is None and not verdict.unit):
        return ""
    return number(verdict.value, verdict.unit)


def clean(text: str) -> str:
    """Removes terminal colors, and replaces characters that text formats forbid."""
    return _NOT_XML.sub("�", visible(text))
