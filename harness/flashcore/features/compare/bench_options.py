"""``flashcore bench --against REV``: times the cases that differ from a git revision against it."""

from __future__ import annotations

import argparse

from flashcore.cli import comparison, options, output, progress
from flashcore.errors import Exit, UsageError
from flashcore.features.compare import against
from flashcore.model import slower
from flashcore.model.text import percentage

_DECISION = ("processes", "alpha", "effect")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "build a git revision too; time and judge the cases that differ"
    parser.add_argument("--against", metavar="REV", help=text)
    add_decision(parser, "over all cases, with --against")


def add_decision(parser: argparse.ArgumentParser, scope: str) -> None:
    """Adds the options of a decision; ``scope`` tells what they are about."""
    add = parser.add_argument
    add("--processes", type=int, metavar="N", help=f"processes that time each case (default: {slower.PROCESSES})")
    add("--alpha", type=float, metavar="P", help=f"rate of false alarms {scope} (default: {slower.ALPHA:g})")
    text = f"percent by which a case may get slower (default: {100 * slower.EFFECT:g})"
    add("--effect", type=float, metavar="PCT", help=text)


def chosen(arguments: argparse.Namespace, revision: str) -> against.AgainstOptions:
    """The options of a comparison with a revision."""
    given = {name: value for name in _DECISION if (value := getattr(arguments, name)) is not None}
    if "effect" in given:
        given["effect"] /= 100
    return against.AgainstOptions(revision, resume=getattr(arguments, "resume", False), **given)


def run(arguments: argparse.Namespace) -> int | None:
    if arguments.against is None:
        for name in _DECISION:
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name}: expected together with --against REV, found it alone")
        return None
    executor = getattr(arguments, "executor", "")
    if executor or arguments.gpus != options.default("gpus"):
        name = executor.partition("=")[0] or "gpus"
        raise UsageError(f"--{name}: expected without --against, which times on one GPU of this host; found both")
    if getattr(arguments, "measurements", None):
        raise UsageError(
            "--energy: expected without --against, which compares times; found both\n"
            "  hint: record both revisions with `flashcore bench --energy`, then `flashcore compare`"
        )
    formats = output.parse(arguments.format, ("table", "json"))
    with progress.shown(arguments.quiet) as say:
        result = against.run(options.settings(arguments, upto=None), chosen(arguments, arguments.against), say)
    for form, file in formats:
        output.write(f"{as_json(result) if form == 'json' else as_text(result)}\n", file)
    return result.exit_code


def as_text(result: against.TimedBuilds) -> str:
    """The cases, the spread of no change, and the outcome."""
    lines = [comparison.as_text(result.comparison, every=True), ""]
    if nulls := result.unchanged:
        most = max(nulls, key=lambda subject: nulls[subject])
        lines += [
            f"A/A: {result.options.revision} was compared with itself in {result.options.processes} processes of each "
            f"case, the largest difference {percentage(100 * nulls[most], 2)} ({most})",
            f"slower: beyond noise ({result.options.alpha:g} a gate run, over all cases) and by more than "
            f"{100 * result.options.effect:g} %",
        ]
    if result.throttle:
        lines.append(f"the clock was limited meanwhile: {', '.join(result.throttle)}")
    outcomes = {Exit.OK: "passed", Exit.FAILED: "FAILED", Exit.INCAPABLE: f"COULD NOT TIME ({result.obstacle})"}
    outcome = outcomes.get(result.exit_code, "UNDECIDED")
    return "\n".join([*lines, f"against {outcome}: {result.comparison.summary} (exit {int(result.exit_code)})"])


def as_json(result: against.TimedBuilds) -> str:
    """The comparison, with the test's parameters, why nothing was timed if so, and the outcome."""
    outcomes = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "undecided"}
    return comparison.as_json(
        result.comparison,
        **output.picked(result.options, *_DECISION),
        **output.picked(result, "rounds", "throttle", "obstacle", "exit_code"),
        outcome=outcomes.get(result.exit_code, "infrastructure"),
        largest_aa=max(result.unchanged.values(), default=None),
    )
