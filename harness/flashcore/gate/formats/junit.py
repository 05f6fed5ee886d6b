"""JUnit XML: a suite a budget, a case a subject. What is unmeasured though required is an *error*."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Places
from flashcore.gate.wording import clean, sentence
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, _: Places) -> str:
    """The judgement as JUnit XML."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in judgement.verdicts:
        groups.setdefault(verdict.budget, []).append(verdict)
    top = ET.Element("testsuites", name=f"flashcore gate: {record.suite.name}")
    totals = [0, 0, 0]
    for budget, verdicts in groups.items():
        suite = ET.SubElement(top, "testsuite", name=clean(budget))
        kinds = [_case(suite, record, v) for v in verdicts]
        counted = (len(kinds), kinds.count("failure"), kinds.count("error"))
        totals = [a + b for a, b in zip(totals, counted, strict=True)]
        _count(suite, counted)
        suite.set("skipped", str(kinds.count("skipped")))
    _count(top, totals)
    ET.indent(top, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode") + "\n"


def _count(element: ET.Element, counted: tuple[int, ...] | list[int]) -> None:
    for name, count in zip(("tests", "failures", "errors"), counted, strict=True):
        element.set(name, str(count))


def _case(suite: ET.Element, record: Record, verdict: Verdict) -> str:
    """Adds a case; gives the name of its failure's element, empty if there is none."""
    name = f"{record.suite.name}.{verdict.budget}"
    case = ET.SubElement(suite, "testcase", classname=clean(name), name=clean(str(verdict.subject)))
    words = clean(sentence(verdict))
    gap = "error" if verdict.required else "skipped"
    kind = {"fail": "failure", "unmeasured": gap, "open": "skipped"}.get(verdict.status, "")
    if kind:
        head = words.splitlines()[0]
        ET.SubElement(case, kind, type=verdict.status, message=head).text = words if words != head else None
    elif verdict.status == "waived":
        ET.SubElement(case, "system-out").text = f"waived: {words}"
    return kind
