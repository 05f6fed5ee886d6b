"""Renders a judgement as JSON, in the form of ``gate.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flashcore import __version__
from flashcore.errors import Exit
from flashcore.explain.advice import as_data
from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Places
from flashcore.gate.together import chip_of
from flashcore.model.record import Record

VERSION = 1
_OUTCOMES = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "unmeasured"}


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as JSON."""
    data = {
        "version": VERSION,
        "tool": f"flashcore {__version__}",
        "suite": record.suite.name,
        "nvcc": record.environment.nvcc,
        "gpu": ", ".join(judgement.chips) or record.gpu,
        "require": judgement.require,
        "outcome": _OUTCOMES.get(judgement.exit_code, "infrastructure"),
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
    return with_rows(data, "verdicts", [_verdict(v, places) for v in judgement.verdicts])


def with_rows(data: Mapping[str, Any], key: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """``data`` as JSON, with ``rows`` in place of its empty list ``key``, one row per line.

    Ten thousand cases have fifty thousand rows, and indenting these would take seconds.
    """
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    lines = list(map(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, rows))
    return text.replace(f'"{key}": []', f'"{key}": [\n' + ",\n".join(lines) + "\n]", 1) if lines else text


def _verdict(verdict: Verdict, places: Places) -> dict[str, Any]:
    s, chip = verdict.subject, chip_of(verdict.subject)
    place = places.of(verdict) if verdict.status not in ("pass", "open") else None
    return {
        "budget": verdict.budget,
        "fact": verdict.fact,
        "subject": {"variant": s.variant, "arch": s.arch, "shape": s.shape, "kernel": s.kernel, "launch": s.launch}
        | ({"chip": chip} if chip else {}),
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
    } | ({"advice": as_data(verdict.advice)} if verdict.advice else {})
