"""SARIF 2.1.0: what failed, what is unmeasured though required, and what is waived, as a *suppressed* result."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from flashcore import __version__
from flashcore.errors import Exit
from flashcore.explain.advice import as_data
from flashcore.gate.formats.json import with_rows
from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Place, Places
from flashcore.gate.wording import sentence, summary
from flashcore.model.record import Record
from flashcore.plugins.formats import fallback


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as SARIF."""
    manifest = fallback.manifest(places)
    shown = (*judgement.failed, *judgement.unexplained_gaps, *judgement.waived)
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
    driver = {
        "name": "flashcore",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": list(rules.values()),
    }
    invocation = {
        # The gate ran successfully, whatever it found, unless the machine could not do it.
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
        "properties": {"suite": record.suite.name, "counts": {**judgement.counts()}},
    }
    data = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return with_rows(data, "results", [_result(v, order[v.budget], places.of(v) or manifest) for v in shown])


def _result(verdict: Verdict, rule: int, place: Place) -> dict[str, Any]:
    key = f"{verdict.budget} {verdict.subject}"
    kind = "function" if verdict.subject.kernel else "module"
    inside = not place.file.startswith("/")
    uri = {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"} if inside else {"uri": f"file://{quote(place.file)}"}
    location = {
        "logicalLocations": [{"fullyQualifiedName": str(verdict.subject), "kind": kind}],
        "physicalLocation": {"artifactLocation": uri, "region": {"startLine": place.line}},
    }
    result: dict[str, Any] = {
        "ruleId": verdict.budget,
        "ruleIndex": rule,
        "level": "warning" if verdict.status == "unmeasured" else "error",
        "message": {"text": sentence(verdict)},
        # Line numbers change with every edit; the budget and its subject do not.
        "partialFingerprints": {"flashcoreVerdict/v1": hashlib.sha256(key.encode()).hexdigest()[:32]},
        "properties": {"status": verdict.status, "value": verdict.value, "unit": verdict.unit, "limit": verdict.limit},
        "locations": [location],
    }
    if verdict.advice:
        result["properties"]["advice"] = as_data(verdict.advice)
    if verdict.status == "waived":
        result["suppressions"] = [{"kind": "external", "justification": verdict.reason}]
    return result
