"""JUnit XML: a suite a budget, a case a subject. What is unmeasured though required is an *error*."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Places
from flashcore.gate.wording import clean, sentence
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, _: Places) -> str:
    """The judgement as JUnit XML. Written line by line: an element tree of fifty thousand cases takes a second
    longer."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in judgement.verdicts:
        groups.setdefault(verdict.budget, []).append(verdict)
    lines: list[str] = []
    every: list[str] = []
    for budget, verdicts in groups.items():
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
    """The name of its failure's element, empty if there is none."""
    gap = "error" if verdict.required else "skipped"
    return {"fail": "failure", "unmeasured": gap, "open": "skipped"}.get(verdict.status, "")


def _case(name: str, verdict: Verdict, kind: str) -> str:
    head = f'  <testcase classname="{name}" name="{_attribute(str(verdict.subject))}"'
    inside = "".join(_inside(verdict, kind))
    return f"{head}>{inside}</testcase>" if inside else f"{head} />"


def _inside(verdict: Verdict, kind: str) -> Iterable[str]:
    if kind:
        words = clean(sentence(verdict))
        first = words.splitlines()[0]
        opened = f'{kind} type="{verdict.status}" message="{_attribute(first)}"'
        yield f"<{opened}>{escape(words, quote=False)}</{kind}>" if words != first else f"<{opened} />"
    elif verdict.status == "waived":
        yield f"<system-out>waived: {escape(clean(sentence(verdict)), quote=False)}</system-out>"


def _attribute(text: str) -> str:
    """As an attribute's value, in double quotes; line ends are escaped, since a reader would turn them into spaces."""
    return escape(clean(text)).replace("\n", "&#10;").replace("\t", "&#9;")
