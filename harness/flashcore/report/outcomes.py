"""The outcome of predictions, as badges."""

from __future__ import annotations

from flashcore.explain.predictions import Outcome
from flashcore.model.catalogue import PHASE_SHARE
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.report.cells import Cell

#: An outcome's word, and the mark that the style sheet knows.
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "held": ("held", "pass"),
    "more": ("exceeded", "pass"),
    "partly": ("partly", "waived"),
    "none": ("no effect", "open"),
    "against": ("other way", "fail"),
    "missed": ("missed", "fail"),
    "elsewhere": ("not comparable", "unmeasured"),
    "unmeasured": ("unmeasured", "unmeasured"),
    "open": ("none made", "open"),
}


def outcome_cell(outcome: Outcome, note: str = "") -> Cell:
    """The badge of the outcome of a prediction; ``note`` on hover."""
    text, mark = OUTCOMES[outcome]
    return Cell(text, title=note, sort=float(list(OUTCOMES).index(outcome)), mark=mark)


def predicted_share(step: Variant, phase: str, shape: Shape) -> Prediction | None:
    """The prediction for a phase's share; of several the first."""
    own = (p for p in step.predictions if p.fact == PHASE_SHARE + phase and p.shape in (None, shape.name))
    return next(own, None)
