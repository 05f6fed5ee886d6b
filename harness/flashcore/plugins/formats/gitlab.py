"""GitLab's Code Quality report: an issue per failure, per required but unmeasured fact, and per waived failure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from flashcore.errors import Exit
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Place, Places
from flashcore.gate.wording import clean, sentence, summary
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as a JSON list.

    GitLab drops issues without a line in the repository, so these are at the suite's manifest. A gate that neither
    passes nor has an issue has one for its summary.
    """
    levels = (("major", judgement.failed), ("minor", judgement.unexplained_gaps), ("info", judgement.waived))

    def issue(severity: str, check: str, subject: str, text: str, place: Place | None) -> dict[str, Any]:
        if place is None or place.file.startswith("/"):
            place = places.manifest
        # Not the line's number, which changes with every edit.
        key = f"{record.suite.name} {check} {subject}"
        return {
            "description": clean(text),
            "check_name": check,
            "fingerprint": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest(),
            "severity": severity,
            "location": {"path": place.file, "lines": {"begin": place.line}},
        }

    issues = [
        issue(severity, v.budget, str(v.subject), sentence(v), places.of(v))
        for severity, verdicts in levels
        for v in verdicts
    ]
    if judgement.exit_code is not Exit.OK and not (judgement.failed or judgement.unexplained_gaps):
        issues.append(issue("major", "gate", "", summary(judgement), None))
    return json.dumps(issues, indent=1, ensure_ascii=False) + "\n"
