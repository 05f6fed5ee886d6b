"""``flashcore bench --against REV``: times the cases that differ from a git revision against it."""

from __future__ import annotations

import argparse

from flashcore.cli import options, output, progress
from flashcore.errors import UsageError
from flashcore.plugins.against import against, comparison, decide


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--against",
        metavar="REV",
        help="build a git revision too; time and judge the cases that differ",
    )
    add(
        "--processes",
        type=int,
        metavar="N",
        help=f"with --against: processes that time each case (default: {decide.PROCESSES})",
    )
    add(
        "--alpha",
        type=float,
        metavar="P",
        help=f"with --against: rate of runs with a false alarm, over all cases (default: {decide.ALPHA:g})",
    )
    add(
        "--effect",
        type=float,
        metavar="PCT",
        help=f"with --against: percent by which a case may get slower (default: {100 * decide.EFFECT:g})",
    )
    add(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT[=FILE]",
        help="with --against: table or json, on standard output or into FILE; repeatable",
    )


def run(arguments: argparse.Namespace) -> int | None:
    given = {n: value for n in ("processes", "alpha", "effect") if (value := getattr(arguments, n)) is not None}
    if arguments.against is None:
        for name in (*given, *["format"] * bool(arguments.format)):
            raise UsageError(f"--{name}: expected together with --against REV, found it alone")
        return None
    executor = getattr(arguments, "executor", "")
    if executor or arguments.gpus != options.default("gpus"):
        name = executor.partition("=")[0] or "gpus"
        raise UsageError(f"--{name}: expected without --against, which times on one GPU of this host; found both")

    if getattr(arguments, "measurements", None):
        raise UsageError(
            "--energy: expected without --against, which compares times; found both\n"
            "  hint: record both revisions with `flashcore bench --energy`, then `flashcore diff`"
        )
    if "effect" in given:
        given["effect"] /= 100
    formats = output.parse(arguments.format, ("table", "json"))
    chosen = against.Options(arguments.against, resume=arguments.resume, **given)
    with progress.shown(arguments.quiet) as say:
        result = against.run(options.settings(arguments, upto=None), chosen, say)
    for form, file in formats:
        output.write(f"{comparison.as_json(result) if form == 'json' else comparison.as_text(result)}\n", file)
    return result.exit_code
