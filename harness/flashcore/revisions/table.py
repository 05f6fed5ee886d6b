"""A comparison with another revision as others read it: the terminal's table, and JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flashcore import __version__
from flashcore.errors import Exit, UsageError
from flashcore.gate.formats import Format, parse
from flashcore.model import text
from flashcore.revisions.decide import Outcome, Process

JSON_VERSION = 1
FORMATS: tuple[Format, ...] = ("table", "json")

#: What can become of a case besides a decision: its machine code did not change, the revision does not have it, this
#: GPU does not run it, or the present build does not compile or is wrong.
Fate = Outcome | Literal["same code", "nothing to compare with", "unsupported", "failed"]

_EXIT_OF: dict[Fate, Exit] = {"slower": Exit.FAILED, "failed": Exit.FAILED, "undecided": Exit.UNMEASURED}


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one case. Times are in us (:func:`level`); see :class:`flashcore.revisions.decide.Decision`."""

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
    def nulls(self) -> dict[str, list[float]]:
        """Every comparison of before with itself, one a process, as ratio less 1, by case."""
        return {row.case: [math.expm1(p.null) for p in row.processes] for row in self.rows if row.processes}


def wanted(formats: Sequence[str]) -> list[tuple[Format, str | None]]:
    """``FORMAT`` or ``FORMAT=FILE`` each, as the gate takes them.

    Raises:
        UsageError: it is neither ``table`` nor ``json``.
    """
    found = parse(formats)
    for form, _ in found:
        if form not in FORMATS:
            raise UsageError(f"--format {form}: expected {' or '.join(FORMATS)} with --against")
    return found


def render(form: Format, found: Comparison) -> str:
    """The comparison in one of :data:`FORMATS`, ending in a newline."""
    return (as_json(found) if form == "json" else table(found)) + "\n"


# --- the terminal -------------------------------------------------------------------------------


def table(found: Comparison) -> str:
    """The cases that were timed, then why others were not, and the sum."""
    lines = [f"{found.suite}: the present tree against {found.revision} ({found.commit[:12]}), {found.gpu or 'no GPU'}"]
    timed = [row for row in found.rows if row.change is not None]
    if timed:
        head = ("case", "before us", "after us", "change %", "chance ends at %", "verdict")
        lines += ["", text.grid(head, [_cells(row) for row in timed])]
    same = [row.case for row in found.rows if row.fate == "same code"]
    rest: dict[str, list[str]] = {}
    for row in found.rows:
        if row.change is None and row.fate != "same code":
            rest.setdefault(f"{row.fate}: {_first_line(row.reason)}", []).append(row.case)
    if rest:
        lines += ["", *(f"{why}: {_named(cases)}" for why, cases in rest.items())]
    if same:
        lines += ["", f"same code, so not timed: {_named(same)}"]
    if found.nulls:
        lines += ["", _spread(found)]
    if found.throttle:
        lines.append(f"the clock was held back meanwhile: {', '.join(found.throttle)}")
    return "\n".join([*lines, "", summary(found)])


def summary(found: Comparison) -> str:
    """One line: the outcome, the counts, the exit code."""
    words = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: f"COULD NOT TIME ({found.obstacle})"}
    counts = Counter(row.fate for row in found.rows)
    named = ", ".join(f"{count} {fate}" for fate, count in counts.items()) or "no cases"
    return f"against {words.get(found.exit_code, 'UNDECIDED')}: {named} (exit {int(found.exit_code)})"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = row.fate.upper() if row.fate in ("slower", "failed", "undecided") else row.fate
    numbers = (row.before_us, row.after_us)
    shares = (row.change, row.critical)
    return (
        row.case,
        *("-" if x is None else f"{x:,.3f}" for x in numbers),
        *("-" if x is None else f"{100 * x:{sign}.2f}" for x, sign in zip(shares, "+-", strict=True)),
        f"{verdict}: {row.reason}" if row.reason else verdict,
    )


def _spread(found: Comparison) -> str:
    """How many times nothing was compared with nothing, and what was seen there at most."""
    largest, case = max((max(map(abs, values)), case) for case, values in found.nulls.items())
    count = sum(map(len, found.nulls.values()))
    return (
        f"A/A: before was compared with itself {count} times, the largest difference {100 * largest:.2f} % ({case})\n"
        f"slower: beyond chance ({found.alpha:g} a gate run, over all cases) and by more than {100 * found.effect:g} %"
    )


def _named(cases: Sequence[str], most: int = 6) -> str:
    more = f" and {len(cases) - most} more" if len(cases) > most else ""
    return ", ".join(cases[:most]) + more


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


# --- JSON ---------------------------------------------------------------------------------------


def as_json(found: Comparison) -> str:
    """All of it: shares as fractions (0.02 is 2 %), times in us, and what every process said of each case."""
    words = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "undecided"}
    nulls = [value for values in found.nulls.values() for value in values]
    data = {
        "version": JSON_VERSION,
        "tool": f"flashcore {__version__}",
        "suite": found.suite,
        "revision": found.revision,
        "commit": found.commit,
        "gpu": found.gpu,
        "nvcc": found.nvcc,
        "alpha": found.alpha,
        "effect": found.effect,
        "rounds": found.rounds,
        "throttle": list(found.throttle),
        "outcome": words.get(found.exit_code, "infrastructure"),
        "obstacle": found.obstacle,
        "exit_code": int(found.exit_code),
        "aa": {"comparisons": len(nulls), "largest": max(map(abs, nulls), default=None)},
        "cases": [_row(row) for row in found.rows],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


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
        "chance_ends_at": row.critical,
        "changes": [math.expm1(p.change) for p in row.processes],
        "nulls": [math.expm1(p.null) for p in row.processes],
    }


def level(samples: Sequence[Sequence[float]]) -> float:
    """Of each process the median, of these the geometric mean, as changes are averaged."""
    return statistics.geometric_mean(map(statistics.median, samples))
