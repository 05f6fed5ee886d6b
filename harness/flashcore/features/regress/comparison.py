"""A comparison with another revision: the outcome of each case, the exit code, and both as JSON and text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from flashcore.cli import output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.model.decide import Outcome, Process
from flashcore.model.groups import grouped
from flashcore.model.text import fixed

#: The outcome of a case: a decision, or its machine code did not change, the revision does not have it, this GPU does
#: not run it, or the present build does not compile or is wrong.
Fate = Outcome | Literal["same code", "nothing to compare with", "unsupported", "failed"]

_EXIT_OF: dict[Fate, Exit] = {"slower": Exit.FAILED, "failed": Exit.FAILED, "undecided": Exit.UNMEASURED}


class Row(NamedTuple):
    """The outcome of one case. Times are in us; see :class:`flashcore.model.decide.Decision`."""

    case: str
    fate: Fate
    reason: str = ""
    before_us: float | None = None
    after_us: float | None = None
    change: float | None = None
    critical: float | None = None
    processes: tuple[Process, ...] = ()

    @property
    def outcome(self) -> str:
        """The fate and its reason, if there is one."""
        return f"{self.fate}: {self.reason}" if self.reason else self.fate


class Comparison(NamedTuple):
    """The present tree against a revision. ``obstacle`` is the reason why this machine could not time the cases that
    differ; empty if it could, or no case differs."""

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


def as_json(comparison: Comparison) -> str:
    """Everything: shares as fractions (0.02 is 2 %), times in us, and the ratios of each process for each case."""
    outcomes = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "undecided"}
    cases = []
    for row in comparison.rows:
        variant, _, shape = row.case.partition("/")
        cases.append(
            {
                "variant": variant,
                "shape": shape,
                **output.picked(row, "fate", "reason", "before_us", "after_us", "change"),
                "noise_threshold": row.critical,
                "changes": [math.expm1(p.change) for p in row.processes],
                "aa_changes": [math.expm1(p.null) for p in row.processes],
            }
        )
    same = [abs(change) for case in cases for change in case["aa_changes"]]
    settings = ("suite", "revision", "commit", "gpu", "nvcc", "alpha", "effect", "rounds", "throttle")
    return output.document(
        **output.picked(comparison, *settings, "obstacle", "exit_code"),
        outcome=outcomes.get(comparison.exit_code, "infrastructure"),
        aa={"comparisons": len(same), "largest": max(same, default=None)},
        cases=cases,
    )


def as_text(result: Comparison) -> str:
    """The timed cases, the reasons why others were not timed, and the summary."""
    rows, exit_code = result.rows, result.exit_code
    head = (
        f"{result.suite}: the present tree against {result.revision} ({result.commit[:12]}), {result.gpu or 'no GPU'}"
    )
    columns = ("case", "before µs", "after µs", "change %", "noise threshold %", "verdict")
    timed = [_timed(row) for row in rows if row.change is not None]
    parts = [head, grid(columns, timed) if timed else ""]
    rest = [row for row in rows if row.change is None and row.fate != "same code"]
    whys = grouped(
        (f"{row.fate}: {row.reason.strip().partition(chr(10))[0] or 'no reason given'}", row.case) for row in rest
    )
    parts.append("\n".join(f"{why}: {_named(cases)}" for why, cases in whys.items()))
    same = [row.case for row in rows if row.fate == "same code"]
    parts.append(f"same code, so not timed: {_named(same)}" if same else "")
    notes = []
    if nulls := [(abs(math.expm1(p.null)), row.case) for row in rows for p in row.processes]:
        most, case = max(nulls)
        notes = [
            f"A/A: before was compared with itself {len(nulls)} times, "
            f"the largest difference {100 * most:.2f} % ({case})",
            f"slower: beyond noise ({result.alpha:g} a gate run, over all cases) and by more than "
            f"{100 * result.effect:g} %",
        ]
    if result.throttle:
        notes.append(f"the clock was limited meanwhile: {', '.join(result.throttle)}")
    outcomes = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: f"COULD NOT TIME ({result.obstacle})"}
    counts = ", ".join(f"{count} {fate}" for fate, count in Counter(row.fate for row in rows).items()) or "no cases"
    summary = f"against {outcomes.get(exit_code, 'UNDECIDED')}: {counts} (exit {int(exit_code)})"
    return "\n\n".join(filter(None, [*parts, "\n".join(notes), summary]))


def _timed(row: Row) -> tuple[str, ...]:
    emphasized = row.fate in ("slower", "failed", "undecided")
    outcome = row.outcome.replace(row.fate, row.fate.upper(), 1) if emphasized else row.outcome
    change, critical = (
        "-" if x is None else f"{100 * x:{sign}.2f}" for x, sign in ((row.change, "+"), (row.critical, "-"))
    )
    return row.case, fixed(row.before_us, 3, "-"), fixed(row.after_us, 3, "-"), change, critical, outcome


def _named(cases: Sequence[str]) -> str:
    return ", ".join(cases[:6]) + (f" and {len(cases) - 6} more" if cases[6:] else "")
