"""Badges for outcomes of stages, builds, checks and predictions."""

from __future__ import annotations

from flashcore.explain.predictions import Outcome
from flashcore.model.record import CaseOutcome
from flashcore.report.cells import Cell

#: Status of a case, stage or build → the style sheet's mark; others are ``unmeasured``.
_MARKS = {"ok": "pass", "built": "pass", "failed": "fail", "stale": "stale", "unsupported": "open"}

#: A prediction's outcome → (word, the style sheet's mark).
PREDICTIONS: dict[Outcome, tuple[str, str]] = {
    "confirmed": ("confirmed", "pass"),
    "more": ("exceeded", "pass"),
    "partly": ("partly", "waived"),
    "none": ("no effect", "open"),
    "against": ("other way", "fail"),
    "missed": ("missed", "fail"),
    "elsewhere": ("not comparable", "unmeasured"),
    "unmeasured": ("unmeasured", "unmeasured"),
    "open": ("none made", "open"),
}


def status_mark(status: str) -> str:
    """The style sheet's mark for a status."""
    return _MARKS.get(status, "unmeasured")


def check_cell(check: CaseOutcome, title: str = "") -> Cell:
    """The badge of a check's outcome."""
    word = {"ok": "right", "failed": "wrong"}.get(check.status, check.status)
    return Cell(word, title=title, sort=float(check.status != "ok"), mark=status_mark(check.status))


def prediction_cell(outcome: Outcome, note: str = "") -> Cell:
    """The badge of a prediction's outcome; ``note`` on hover."""
    text, mark = PREDICTIONS[outcome]
    return Cell(text, title=note, sort=float(list(PREDICTIONS).index(outcome)), mark=mark)
