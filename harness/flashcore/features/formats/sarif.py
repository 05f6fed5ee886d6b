"""SARIF 2.1.0: failures, required but unmeasured facts, and waived failures as *suppressed* results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from flashcore import __version__
from flashcore.errors import Exit
from flashcore.explain.advice import as_data
from flashcore.explain.verdict import Verdict
from flashcore.gate.formats import with_rows
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places, SourcePlace
from flashcore.gate.wording import causes, identity, sentence, summary
from flashcore.model.files import text_hash
from flashcore.model.groups import picked
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as SARIF."""
    shown = (*judgement.failed, *judgement.unexplained_gaps, *judgement.waived)
    rules = {
        v.budget: {
            "id": v.budget,
            "shortDescription": {"text": f"{v.budget}: {v.fact}"},
            "fullDescription": {"text": f"{v.fact} {v.limit}: {v.source}"},
            "defaultConfiguration": {"level": "error"},
            "properties": picked(v, "tier", "fact"),
        }
        for v in reversed(shown)
    }
    names = list(dict.fromkeys(v.budget for v in shown))
    driver = {
        "name": "flashcore",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [rules[name] for name in names],
    }
    invocation = {
        # Failed budgets are results of a successful run.
        "executionSuccessful": judgement.exit_code is not Exit.INCAPABLE,
        "exitCode": int(judgement.exit_code),
        "exitCodeDescription": summary(judgement),
        "toolExecutionNotifications": [{"level": "note", "message": {"text": note}} for note in judgement.notes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "invocations": [invocation],
        "results": [],
        "properties": {
            "suite": record.suite.name,
            "counts": {**judgement.counts()},
        },
    }
    data = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return with_rows(
        data,
        "results",
        [
            _result(group, names.index(group[0].budget), places.of(group[0]) or places.manifest)
            for verdicts in (judgement.failed, judgement.unexplained_gaps, judgement.waived)
            for group in causes(verdicts, places.of)
        ],
    )


def _result(group: Sequence[Verdict], rule: int, place: SourcePlace) -> dict[str, Any]:
    verdict = group[0]
    inside = not place.file.startswith("/")
    uri = {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"} if inside else {"uri": f"file://{quote(place.file)}"}
    location = {
        "logicalLocations": [
            {"fullyQualifiedName": str(v.subject), "kind": "function" if v.subject.kernel else "module"} for v in group
        ],
        "physicalLocation": {"artifactLocation": uri, "region": {"startLine": place.line}},
    }
    result: dict[str, Any] = {
        "ruleId": verdict.budget,
        "ruleIndex": rule,
        "level": "warning" if verdict.status == "unmeasured" else "error",
        "message": {"text": sentence(*group)},
        "partialFingerprints": {"flashcoreVerdict/v1": text_hash(identity(group))[:32]},
        "properties": picked(verdict, "status", "value", "unit", "limit"),
        "locations": [location],
    }
    if verdict.advice:
        result["properties"]["advice"] = as_data(verdict.advice)
    if verdict.status == "waived":
        result["suppressions"] = [{"kind": "external", "justification": verdict.reason}]
    return result
