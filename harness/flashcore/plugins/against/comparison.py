"""A comparison with another revision: the outcome of each case, the exit code, and all of it as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from flashcore import __version__
from flashcore.errors import Exit
from flashcore.plugins.against.decide import Outcome, Process

JSON_VERSION = 1

#: The outcomes of a case besides a decision: its machine code did not change, the revision does not have it, this
#: GPU does not run it, or the present build does not compile or is wrong.
Fate = Outcome | Literal["same code", "nothing to compare with", "unsupported", "failed"]

_EXIT_OF: dict[Fate, Exit] = {"slower": Exit.FAILED, "failed": Exit.FAILED, "undecided": Exit.UNMEASURED}


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one case. Times are in us; see :class:`flashcore.plugins.against.decide.Decision`."""

    case: str
    fate: Fate
    reason: str = ""
    before_us: float | None = None
    after_us: float | None = None
    change: float | None = None
    critical: float | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The present tree against a revision.

    ``obstacle`` says why this machine could not time what differs; empty if it could, or nothing does.
    """

    suite: str
    revision: str
    commit: str
    gpu: str | None
    nvcc: str | None
    alpha: float
    effect: float
    rounds: int
    rows: tuple[Row, ...]
    throttle: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def exit_code(self) -> Exit:
        codes = {_EXIT_OF.get(row.fate, Exit.OK) for row in self.rows} | {Exit.OK}
        if Exit.FAILED in codes:
            return Exit.FAILED
        return Exit.INCAPABLE if self.obstacle else max(codes)

    @property
    def aa_changes(self) -> dict[str, list[float]]:
        """The A/A comparisons of the revision's build, one per process, as ratio less 1, by case."""
        return {row.case: [math.expm1(p.null) for p in row.processes] for row in self.rows if row.processes}


def as_json(comparison: Comparison) -> str:
    """All of it: shares as fractions (0.02 is 2 %), times in us, and the ratios of each process for each case."""
    words = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "undecided"}
    aa_changes = [value for values in comparison.aa_changes.values() for value in values]
    data = {
        "version": JSON_VERSION,
        "tool": f"flashcore {__version__}",
        "suite": comparison.suite,
        "revision": comparison.revision,
        "commit": comparison.commit,
        "gpu": comparison.gpu,
        "nvcc": comparison.nvcc,
        "alpha": comparison.alpha,
        "effect": comparison.effect,
        "rounds": comparison.rounds,
        "throttle": list(comparison.throttle),
        "outcome": words.get(comparison.exit_code, "infrastructure"),
        "obstacle": comparison.obstacle,
        "exit_code": int(comparison.exit_code),
        "aa": {"comparisons": len(aa_changes), "largest": max(map(abs, aa_changes), default=None)},
        "cases": [_row(row) for row in comparison.rows],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    variant, _, shape = row.case.partition("/")
    return {
        "variant": variant,
        "shape": shape,
        "fate": row.fate,
        "reason": row.reason,
        "before_us": row.before_us,
        "after_us": row.after_us,
        "change": row.change,
        "noise_threshold": row.critical,
        "changes": [math.expm1(p.change) for p in row.processes],
        "aa_changes": [math.expm1(p.null) for p in row.processes],
    }
