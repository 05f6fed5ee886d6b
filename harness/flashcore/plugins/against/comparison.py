"""A comparison with another revision: the outcome of each case, the exit code, and both as JSON and text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from flashcore.cli import output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.plugins.against.decide import Outcome, Process

#: The outcome of a case: a decision, or its machine code did not change, the revision does not have it, this GPU does
#: not run it, or the present build does not compile or is wrong.
Fate = Outcome | Literal["same code", "nothing to compare with", "unsupported", "failed"]

_EXIT_OF: dict[Fate, Exit] = {"slower": Exit.FAILED, "failed": Exit.FAILED, "undecided": Exit.UNMEASURED}


class Row(NamedTuple):
    """The outcome of one case. Times are in us; see :class:`flashcore.plugins.against.decide.Decision`."""

    case: str
    fate: Fate
    reason: str = ""
    before_us: float | None = None
    after_us: float | None = None
    change: float | None = None
    critical: float | None = None
    processes: tuple[Process, ...] = ()


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

    @property
    def aa_changes(self) -> dict[str, list[float]]:
        """The A/A comparisons of the revision's build, one per process, as ratio less 1, by case."""
        return {row.case: [math.expm1(p.null) for p in row.processes] for row in self.rows if row.processes}


def as_json(comparison: Comparison) -> str:
    """Everything: shares as fractions (0.02 is 2 %), times in us, and the ratios of each process for each case."""
    outcomes = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "undecided"}
    aa_changes = [value for values in comparison.aa_changes.values() for value in values]
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
                "aa_changes": comparison.aa_changes.get(row.case, []),
            }
        )
    settings = ("suite", "revision", "commit", "gpu", "nvcc", "alpha", "effect", "rounds", "throttle")
    return output.document(
        **output.picked(comparison, *settings),
        outcome=outcomes.get(comparison.exit_code, "infrastructure"),
        **output.picked(comparison, "obstacle", "exit_code"),
        aa={"comparisons": len(aa_changes), "largest": max(map(abs, aa_changes), default=None)},
        cases=cases,
    )


def as_text(result: Comparison) -> str:
    """The timed cases, the reasons why others were not timed, and the summary."""
    rows, exit_code = result.rows, result.exit_code
    lines = [
        f"{result.suite}: the present tree against {result.revision} ({result.commit[:12]}), {result.gpu or 'no GPU'}"
    ]
    if timed := [_timed(row) for row in rows if row.change is not None]:
        lines += ["", grid(("case", "before µs", "after µs", "change %", "noise threshold %", "verdict"), timed)]
    rest = [row for row in rows if row.change is None and row.fate != "same code"]
    whys = grouped(
        (f"{row.fate}: {row.reason.strip().partition(chr(10))[0] or 'no reason given'}", row.case) for row in rest
    )
    if whys:
        lines += ["", *(f"{why}: {_named(cases)}" for why, cases in whys.items())]
    if same := [row.case for row in rows if row.fate == "same code"]:
        lines += ["", f"same code, so not timed: {_named(same)}"]
    if result.aa_changes:
        most, case = max((max(map(abs, values)), case) for case, values in result.aa_changes.items())
        count = sum(map(len, result.aa_changes.values()))
        lines += [
            "",
            f"A/A: before was compared with itself {count} times, the largest difference {100 * most:.2f} % ({case})",
            f"slower: beyond noise ({result.alpha:g} a gate run, over all cases) and by more than "
            f"{100 * result.effect:g} %",
        ]
    if result.throttle:
        lines.append(f"the clock was limited meanwhile: {', '.join(result.throttle)}")
    outcomes = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: f"COULD NOT TIME ({result.obstacle})"}
    counts = ", ".join(f"{count} {fate}" for fate, count in Counter(row.fate for row in rows).items()) or "no cases"
    summary = f"against {outcomes.get(exit_code, 'UNDECIDED')}: {counts} (exit {int(exit_code)})"
    return "\n".join([*lines, "", summary])


def _timed(row: Row) -> tuple[str, ...]:
    fate = row.fate.upper() if row.fate in ("slower", "failed", "undecided") else row.fate
    change, critical = (
        "-" if x is None else f"{100 * x:{sign}.2f}" for x, sign in ((row.change, "+"), (row.critical, "-"))
    )
    times = (fixed(x, 3, "-") for x in (row.before_us, row.after_us))
    return row.case, *times, change, critical, f"{fate}: {row.reason}" if row.reason else fate


def _named(cases: Sequence[str]) -> str:
    return ", ".join(cases[:6]) + (f" and {len(cases) - 6} more" if cases[6:] else "")
