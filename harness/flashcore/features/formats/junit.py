"""JUnit XML: a suite per budget, a case per subject. Required but unmeasured subjects are errors."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from flashcore.explain.verdict import Verdict
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.gate.wording import clean, sentence
from flashcore.model.groups import grouped
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, _: Places) -> str:
    """The judgement as JUnit XML.

    It is written line by line, because an element tree of fifty thousand cases takes a second longer.
    """
    lines: list[str] = []
    every: list[str] = []
    for budget, verdicts in grouped((v.budget, v) for v in judgement.verdicts).items():
        kinds = [_kind(v) for v in verdicts]
        every += kinds
        name = _attribute(f"{record.suite.name}.{budget}")
        lines.append(f' <testsuite name="{_attribute(budget)}" {_count(kinds)} skipped="{kinds.count("skipped")}">')
        lines += (_case(name, v, kind) for v, kind in zip(verdicts, kinds, strict=True))
        lines.append(" </testsuite>")
    top = f'<testsuites name="flashcore gate: {_attribute(record.suite.name)}" {_count(every)}>'
    return "\n".join(('<?xml version="1.0" encoding="UTF-8"?>', top, *lines, "</testsuites>", ""))


def _count(kinds: list[str]) -> str:
    return f'tests="{len(kinds)}" failures="{kinds.count("failure")}" errors="{kinds.count("error")}"'


def _kind(verdict: Verdict) -> str:
    """The element of a failure; empty for a pass."""
    gap = "error" if verdict.required else "skipped"
    return {"fail": "failure", "unmeasured": gap, "open": "skipped"}.get(verdict.status, "")


def _case(name: str, verdict: Verdict, kind: str) -> str:
    head = f'  <testcase classname="{name}" name="{_attribute(str(verdict.subject))}"'
    inside = "".join(_inside(verdict, kind))
    return f"{head}>{inside}</testcase>" if inside else f"{head} />"


def _inside(verdict: Verdict, kind: str) -> Iterator[str]:
    if kind:
        words = clean(sentence(verdict))
        first = words.splitlines()[0]
        opened = f'{kind} type="{verdict.status}" message="{_attribute(first)}"'
        yield f"<{opened}>{escape(words, quote=False)}</{kind}>" if words != first else f"<{opened} />"
    elif verdict.status == "waived":
        yield f"<system-out>waived: {escape(clean(sentence(verdict)), quote=False)}</system-out>"


def _attribute(text: str) -> str:
    """Escapes an attribute's value, including line ends, which readers replace by spaces."""
    return escape(clean(text)).replace("\n", "&#10;").replace("\t", "&#9;")
