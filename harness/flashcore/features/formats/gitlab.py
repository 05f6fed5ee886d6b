"""GitLab's Code Quality report: an issue per cause of failures, of required gaps and of waived failures."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from flashcore.errors import Exit
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places, SourcePlace
from flashcore.gate.wording import causes, clean, identity, sentence, summary
from flashcore.model.record import Record


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as a JSON list.

    GitLab drops issues without a line in the repository, so these are at the suite's manifest. A gate that neither
    passes nor has an issue has one for its summary.
    """
    levels = (("major", judgement.failed), ("minor", judgement.unexplained_gaps), ("info", judgement.waived))

    def issue(severity: str, check: str, identity: str, text: str, place: SourcePlace | None) -> dict[str, Any]:
        if place is None or place.file.startswith("/"):
            place = places.manifest
        key = f"{record.suite.name} {identity}"
        return {
            "description": clean(text),
            "check_name": check,
            "fingerprint": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest(),
            "severity": severity,
            "location": {"path": place.file, "lines": {"begin": place.line}},
        }

    issues = [
        issue(severity, group[0].budget, identity(group), sentence(*group), places.of(group[0]))
        for severity, verdicts in levels
        for group in causes(verdicts, places.of)
    ]
    if judgement.exit_code is not Exit.OK and not (judgement.failed or judgement.unexplained_gaps):
        issues.append(issue("major", "gate", "gate ", summary(judgement), None))
    return json.dumps(issues, indent=1, ensure_ascii=False) + "\n"
