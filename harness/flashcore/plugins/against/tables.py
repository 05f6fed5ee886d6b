"""A comparison with a git revision as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.model.text import fixed
from flashcore.plugins.against.comparison import Comparison, Row


def comparison(result: Comparison) -> str:
    """The cases that were timed against a revision, then why others were not, and the summary."""
    lines = [
        f"{result.suite}: the present tree against {result.revision} ({result.commit[:12]}), {result.gpu or 'no GPU'}"
    ]
    timed = [_timed(row) for row in result.rows if row.change is not None]
    if timed:
        lines += ["", grid(("case", "before µs", "after µs", "change %", "noise threshold %", "verdict"), timed)]
    same = [row.case for row in result.rows if row.fate == "same code"]
    rest: dict[str, list[str]] = {}
    for row in result.rows:
        if row.change is None and row.fate != "same code":
            rest.setdefault(f"{row.fate}: {_first_line(row.reason) or 'no reason given'}", []).append(row.case)
    if rest:
        lines += ["", *(f"{why}: {_named(cases)}" for why, cases in rest.items())]
    if same:
        lines += ["", f"same code, so not timed: {_named(same)}"]
    if result.aa_changes:
        # The number of A/A comparisons, and the largest difference among them.
        most, case = max((max(map(abs, values)), case) for case, values in result.aa_changes.items())
        count = sum(map(len, result.aa_changes.values()))
        largest, effect = f"{100 * most:.2f} %", f"{100 * result.effect:g} %"
        lines += [
            "",
            f"A/A: before was compared with itself {count} times, the largest difference {largest} ({case})",
            f"slower: beyond noise ({result.alpha:g} a gate run, over all cases) and by more than {effect}",
        ]
    if result.throttle:
        lines.append(f"the clock was limited meanwhile: {', '.join(result.throttle)}")
    words = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: f"COULD NOT TIME ({result.obstacle})"}
    fates = Counter(row.fate for row in result.rows)
    counts = ", ".join(f"{count} {fate}" for fate, count in fates.items()) or "no cases"
    word = words.get(result.exit_code, "UNDECIDED")
    return "\n".join([*lines, "", f"against {word}: {counts} (exit {int(result.exit_code)})"])


def _timed(row: Row) -> tuple[str, ...]:
    verdict = row.fate.upper() if row.fate in ("slower", "failed", "undecided") else row.fate
    change, critical = (
        "-" if x is None else f"{100 * x:{sign}.2f}" for x, sign in ((row.change, "+"), (row.critical, "-"))
    )
    times = (fixed(x, 3, "-") for x in (row.before_us, row.after_us))
    return row.case, *times, change, critical, f"{verdict}: {row.reason}" if row.reason else verdict


def _named(cases: Sequence[str], most: int = 6) -> str:
    more = f" and {len(cases) - most} more" if len(cases) > most else ""
    return ", ".join(cases[:most]) + more


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
