"""A judgement as others read it: JSON, JUnit XML, SARIF, Markdown, annotations of a code host.

All but :func:`write` are pure functions from a judgement to text. Tests hold each to its schema: JSON to
``gate.schema.json`` beside this file, JUnit XML to Jenkins' ``junit-10.xsd``, SARIF to that of its version 2.1.0.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote
from xml.etree import ElementTree as ET

from flashcore import __version__
from flashcore.errors import Exit, UsageError
from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Place, Places
from flashcore.gate.table import summary
from flashcore.gate.table import table as text_table
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import Record
from flashcore.model.text import number

Format = Literal["table", "json", "junit", "sarif", "markdown", "github"]
FORMATS: tuple[Format, ...] = get_args(Format)
JSON_VERSION = 1

#: A code host shows this many annotations of one level a step, and drops the rest without a word.
MOST_ANNOTATIONS = 10
#: Rows of one table in Markdown: a job summary may hold 1 MiB.
MOST_ROWS = 100


def render(form: Format, judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement in one of :data:`FORMATS`, ending in a newline."""
    writers: Mapping[Format, Callable[[], str]] = {
        "table": lambda: text_table(judgement),
        "json": lambda: as_json(judgement, record, places),
        "junit": lambda: junit(judgement, record),
        "sarif": lambda: sarif(judgement, record, places),
        "markdown": lambda: markdown(judgement, record, places),
        "github": lambda: f"{github(judgement, places)}{text_table(judgement)}",
    }
    text = writers[form]().rstrip("\n") + "\n"
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written anywhere


def parse(wanted: Sequence[str]) -> list[tuple[Format, str | None]]:
    """``FORMAT`` or ``FORMAT=FILE`` each; the table on standard output where nothing else goes there.

    Raises:
        UsageError: a format is not known, or two want standard output or the same file.
    """
    found: list[tuple[Format, str | None]] = []
    for text in wanted:
        name, equals, file = text.partition("=")
        form = next((f for f in FORMATS if f == name), None)
        if form is None or (equals and not file):
            raise UsageError(f"--format {text}: expected {', '.join(FORMATS)}, or one of them with =FILE")
        found.append((form, file or None))
    targets = [file for _, file in found]
    if len(set(targets)) < len(targets):
        raise UsageError(f"--format {' '.join(wanted)}: expected one format for each file and for standard output")
    return found if None in targets else [*found, ("table", None)]


def write(wanted: Sequence[str], judgement: Judgement, record: Record) -> None:
    """Writes each format where it is wanted. ``github`` also adds the Markdown to the job's summary.

    Raises:
        UsageError: see :func:`parse`.
        FlashcoreError: a file cannot be written.
    """
    places = Places(record)
    for form, file in parse(wanted):
        text = render(form, judgement, record, places)
        if file is None:
            sys.stdout.write(text)
        else:
            with writing(Path(file)):
                Path(file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(file), text.encode())
        job = os.environ.get("GITHUB_STEP_SUMMARY")
        if form == "github" and job:
            with writing(Path(job)), open(job, "a", encoding="utf-8") as stream:
                stream.write(render("markdown", judgement, record, places))


def sentence(verdict: Verdict) -> str:
    """One verdict in words: ``fast/fast_kernel (sm_89): registers 140, promised ≤ 128 (design 000)``."""
    value = "" if verdict.unit == "" and verdict.value in (None, True, False) else number(verdict.value, verdict.unit)
    found = f"{verdict.fact} {value}".rstrip()
    said = f"{verdict.subject}: {found}, promised {verdict.limit} ({verdict.source})"
    return f"{said}: {verdict.reason}" if verdict.reason else said


def _shown(judgement: Judgement) -> list[Verdict]:
    """The limits that a person has to act on: failed, then unmeasured though required."""
    failed = [v for v in judgement.limits if v.status == "fail"]
    return failed + [v for v in judgement.limits if v.status == "unmeasured" and v.required]


# --- JSON ---------------------------------------------------------------------------------------


def as_json(judgement: Judgement, record: Record, places: Places) -> str:
    """Every verdict with its value, place and reason; the form stands in ``gate.schema.json``."""
    data = {
        "version": JSON_VERSION,
        "tool": f"flashcore {__version__}",
        "suite": record.suite.name,
        "nvcc": record.environment.nvcc,
        "gpu": record.gpu,
        "require": judgement.require,
        "outcome": outcome(judgement.exit_code),
        "exit_code": int(judgement.exit_code),
        "counts": {**judgement.counts()},
        "verdicts": [],
        "loosened": [
            {
                "budget": use.waiver.budget,
                "variants": list(use.waiver.variants),
                "archs": list(use.waiver.archs),
                "accepted": use.waiver.accepted,
                "reason": use.waiver.reason,
                "expires": use.waiver.expires,
                "state": use.state,
                "covers": use.covers,
            }
            for use in judgement.waivers
        ],
        "notes": list(judgement.notes),
    }
    return _json(data, "verdicts", [_verdict(v, places) for v in judgement.verdicts])


def _json(data: Mapping[str, Any], key: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """``data`` as JSON, with ``rows`` in the place of its one empty list ``key``, a row a line: ten thousand cases
    have fifty thousand, and indented ones take seconds to write."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    lines = list(map(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, rows))
    return text.replace(f'"{key}": []', f'"{key}": [\n' + ",\n".join(lines) + "\n]", 1) if lines else text


def _verdict(verdict: Verdict, places: Places) -> dict[str, Any]:
    s = verdict.subject
    place = places.of(verdict) if verdict.status not in ("pass", "open") else None
    return {
        "budget": verdict.budget,
        "fact": verdict.fact,
        "subject": {"variant": s.variant, "arch": s.arch, "shape": s.shape, "kernel": s.kernel, "launch": s.launch},
        "tier": verdict.tier,
        "severity": verdict.severity,
        "status": verdict.status,
        "required": verdict.required,
        "value": verdict.value,
        "unit": verdict.unit,
        "limit": verdict.limit,
        "source": verdict.source,
        "reason": verdict.reason,
        "place": None if place is None else {"file": place.file, "line": place.line},
    }


def outcome(code: Exit) -> str:
    """The exit code as a word."""
    words = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "unmeasured"}
    return words.get(code, "infrastructure")


# --- JUnit XML ----------------------------------------------------------------------------------

#: What XML 1.0 cannot hold, not even escaped; compilers colour their words with one of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOUR = re.compile("\x1b\\[[0-9;]*[A-Za-z]")


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", _COLOUR.sub("", text))


def junit(judgement: Judgement, record: Record) -> str:
    """A suite a budget, a case a subject. What is unmeasured though required is an *error*."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in judgement.verdicts:
        groups.setdefault(verdict.budget, []).append(verdict)
    top = ET.Element("testsuites", name=f"flashcore gate: {record.suite.name}")
    totals = [0, 0, 0]
    for budget, verdicts in groups.items():
        suite = ET.SubElement(top, "testsuite", name=_clean(budget))
        kinds = [_junit_case(suite, record, v) for v in verdicts]
        counted = (len(kinds), kinds.count("failure"), kinds.count("error"))
        totals = [a + b for a, b in zip(totals, counted, strict=True)]
        for name, count in zip(("tests", "failures", "errors"), counted, strict=True):
            suite.set(name, str(count))
        suite.set("skipped", str(kinds.count("skipped")))
    for name, count in zip(("tests", "failures", "errors"), totals, strict=True):
        top.set(name, str(count))
    ET.indent(top, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode")


def _junit_case(suite: ET.Element, record: Record, verdict: Verdict) -> str:
    name = f"{record.suite.name}.{verdict.budget}"
    case = ET.SubElement(suite, "testcase", classname=_clean(name), name=_clean(str(verdict.subject)))
    words = _clean(sentence(verdict))
    kind = {"fail": "failure", "unmeasured": "error" if verdict.required else "skipped", "open": "skipped"}.get(
        verdict.status, ""
    )
    if kind:
        head = words.splitlines()[0]
        ET.SubElement(case, kind, type=verdict.status, message=head).text = words if words != head else None
    elif verdict.status == "waived":
        ET.SubElement(case, "system-out").text = f"waived: {words}"
    return kind


# --- SARIF --------------------------------------------------------------------------------------


def sarif(judgement: Judgement, record: Record, places: Places) -> str:
    """What failed, what is unmeasured though required, and what is waived, as a *suppressed* result."""
    waived = [v for v in judgement.limits if v.status == "waived"]
    shown = [*_shown(judgement), *waived]
    rules: dict[str, dict[str, Any]] = {}
    for verdict in shown:
        text = f"{verdict.fact} {verdict.limit}: {verdict.source}"
        rules.setdefault(
            verdict.budget,
            {
                "id": verdict.budget,
                "shortDescription": {"text": f"{verdict.budget}: {verdict.fact}"},
                "fullDescription": {"text": text},
                "defaultConfiguration": {"level": "error"},
                "properties": {"tier": verdict.tier, "fact": verdict.fact},
            },
        )
    order = {name: i for i, name in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "flashcore",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": list(rules.values()),
            }
        },
        "columnKind": "utf16CodeUnits",
        "invocations": [
            {
                # The gate did its work, whatever it found, unless the machine could not do it.
                "executionSuccessful": judgement.exit_code is not Exit.INCAPABLE,
                "exitCode": int(judgement.exit_code),
                "exitCodeDescription": summary(judgement),
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": note}} for note in judgement.notes
                ],
            }
        ],
        "results": [],
        "properties": {"suite": record.suite.name, "counts": {**judgement.counts()}},
    }
    data = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return _json(data, "results", [_result(v, order[v.budget], places.of(v)) for v in shown])


def _result(verdict: Verdict, rule: int, place: Place | None) -> dict[str, Any]:
    key = f"{verdict.budget} {verdict.subject}"
    result: dict[str, Any] = {
        "ruleId": verdict.budget,
        "ruleIndex": rule,
        "level": "warning" if verdict.status == "unmeasured" else "error",
        "message": {"text": sentence(verdict)},
        # Lines move with every edit; what is promised about what does not.
        "partialFingerprints": {"flashcoreVerdict/v1": hashlib.sha256(key.encode()).hexdigest()[:32]},
        "properties": {"status": verdict.status, "value": verdict.value, "unit": verdict.unit, "limit": verdict.limit},
    }
    if verdict.subject.kernel:
        name = {"fullyQualifiedName": str(verdict.subject), "kind": "function"}
    else:
        name = {"fullyQualifiedName": str(verdict.subject), "kind": "module"}
    location: dict[str, Any] = {"logicalLocations": [name]}
    if place is not None:
        inside = not place.file.startswith("/")
        uri = {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"} if inside else {"uri": f"file://{quote(place.file)}"}
        location["physicalLocation"] = {"artifactLocation": uri, "region": {"startLine": place.line}}
    result["locations"] = [location]
    if verdict.status == "waived":
        result["suppressions"] = [{"kind": "external", "justification": verdict.reason}]
    return result


# --- Markdown -----------------------------------------------------------------------------------


def markdown(judgement: Judgement, record: Record, places: Places) -> str:
    """A job's summary: the outcome, what failed with its line, what was loosened, the counts."""
    mark = {Exit.OK: "✅", Exit.FAILED: "❌"}.get(judgement.exit_code, "⚠️")
    lines = [f"## {mark} flashcore gate: {_cell(record.suite.title)}", "", _cell(summary(judgement)), ""]
    lines += _section("Failed", [v for v in judgement.limits if v.status == "fail"], places)
    missing = [v for v in judgement.limits if v.status == "unmeasured" and v.required]
    lines += _section("Unmeasured, though required", missing, places)
    lines += _section("Waived", [v for v in judgement.limits if v.status == "waived"], places)
    rows = [
        (u.waiver.budget, ", ".join(u.waiver.variants), u.state, number(u.waiver.accepted), u.waiver.reason,
         u.waiver.expires or "never") for u in judgement.waivers
    ]  # fmt: skip
    if rows:
        head = ("Budget", "Variants", "State", "Accepted", "Reason", "Expires")
        lines += ["### Loosened in the manifest", "", *_table(head, rows), ""]
    lines += [f"- {_cell(note)}" for note in judgement.notes]
    return "\n".join(lines)


def _section(title: str, verdicts: Sequence[Verdict], places: Places) -> list[str]:
    if not verdicts:
        return []
    rows = []
    for v in verdicts[:MOST_ROWS]:
        place = places.of(v)
        where = f"`{place.file}:{place.line}`" if place else ""
        value = "" if v.unit == "" else number(v.value, v.unit)
        rows.append((v.budget, str(v.subject), value, v.limit, where, v.reason or v.source))
    head = ("Budget", "Subject", "Found", "Promised", "Where", "Why")
    more = [f"… and {len(verdicts) - MOST_ROWS} more", ""] if len(verdicts) > MOST_ROWS else []
    return [f"### {title} ({len(verdicts)})", "", *_table(head, rows), "", *more]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [" | ".join(map(_cell, row)) for row in (head, *rows)]
    return [f"| {cells[0]} |", f"|{' --- |' * len(head)}", *(f"| {c} |" for c in cells[1:])]


def _cell(text: str) -> str:
    """The first line, with what Markdown or HTML would take for its own made plain."""
    line = _clean(text).splitlines()[0] if text.strip() else ""
    if line.startswith("`"):
        return line
    line = line[:297] + "…" if len(line) > 300 else line
    return re.sub(r"([\\|*_<>\[\]])", r"\\\1", line)


# --- annotations --------------------------------------------------------------------------------


def github(judgement: Judgement, places: Places) -> str:
    """Workflow commands that put each failure beside its line of source; empty if all is well.

    Verdicts of one budget on one line share an annotation, since only ten of a level are shown.
    """
    return "".join(
        [
            *_annotations("error", [v for v in judgement.limits if v.status == "fail"], places),
            *_annotations("warning", [v for v in _shown(judgement) if v.status == "unmeasured"], places),
        ]
    )


def _annotations(level: str, verdicts: Sequence[Verdict], places: Places) -> list[str]:
    groups: dict[tuple[str, Place | None], list[Verdict]] = {}
    for v in verdicts:
        groups.setdefault((v.budget, places.of(v)), []).append(v)
    lines = []
    for (budget, place), group in list(groups.items())[:MOST_ANNOTATIONS]:
        words = "\n".join(sentence(v) for v in group[:MOST_ANNOTATIONS])
        if len(group) > MOST_ANNOTATIONS:
            words += f"\n… and {len(group) - MOST_ANNOTATIONS} more"
        where = f"file={_property(place.file)},line={place.line}," if place else ""
        title = "promise broken" if level == "error" else "unmeasured"
        lines.append(f"::{level} {where}title={_property(f'flashcore: {title}: {budget}')}::{_data(words)}\n")
    if len(groups) > MOST_ANNOTATIONS:
        lines[-1] = f"::{level} title=flashcore::{len(groups) - MOST_ANNOTATIONS + 1} more, see the table below\n"
    return lines


def _data(text: str) -> str:
    return _clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
