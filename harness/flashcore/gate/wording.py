"""The text of verdicts and their summary, for all outputs."""

from __future__ import annotations

import re

from flashcore.errors import Exit
from flashcore.explain import advice
from flashcore.gate.judge import Judgement, Verdict
from flashcore.model.text import number, visible

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


def sentence(verdict: Verdict) -> str:
    """One verdict in words: ``fast/fast_kernel (sm_89): registers 140, expected ≤ 128 (design 000)``."""
    result = f"{verdict.fact} {value_of(verdict)}".rstrip()
    statement = f"{verdict.subject}: {result}, expected {verdict.limit} ({verdict.source})"
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
