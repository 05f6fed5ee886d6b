"""``flashcore bench``: times every case on this GPU, or what differs from a git revision against it."""

from __future__ import annotations

import argparse
from typing import Any

from flashcore.cli import options, output
from flashcore.errors import UsageError, worst

HELP = "check, then time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from flashcore.plugins.against import decide

    options.add_cases(parser)
    options.add_measuring(parser)
    parser.add_argument("--against", metavar="REV", help="time what differs from a git revision against it, "
                        "both built here, and judge")  # fmt: skip
    parser.add_argument("--processes", type=int, metavar="N", help="with --against: processes that time each case "
                        f"(default: {decide.PROCESSES})")  # fmt: skip
    parser.add_argument("--alpha", type=float, metavar="P",
                        help="with --against: rate of runs with a false alarm, "
                        f"over all cases (default: {decide.ALPHA:g})")  # fmt: skip
    parser.add_argument("--effect", type=float, metavar="PCT",
                        help="with --against: percent by which a case may get slower "
                        f"(default: {100 * decide.EFFECT:g})")  # fmt: skip
    parser.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]",
                        help="with --against: table or json, on standard output or into FILE; repeatable")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    own = {"processes": arguments.processes, "alpha": arguments.alpha, "effect": arguments.effect}
    given = {name: value for name, value in own.items() if value is not None}
    if arguments.against is not None:
        for name in ("gpus", "cluster"):
            if getattr(arguments, name) != options.default(name):
                raise UsageError(
                    f"--{name}: expected without --against, which times on one GPU of this host; found both"
                )
        return _against(arguments, given)
    for name in [*given, *(["format"] if arguments.format else [])]:
        raise UsageError(f"--{name}: expected together with --against REV, found it alone")
    from flashcore.cli import check, text_tables

    records = [run.record for run in check.measured(arguments, options.settings(arguments, upto="bench"))]
    for record in records:
        print(text_tables.of_chip(text_tables.ladder(record), record, records))
    return worst(map(check.failed, records))


def _against(arguments: argparse.Namespace, given: dict[str, Any]) -> int:
    from flashcore.cli import progress, text_tables
    from flashcore.plugins.against import against
    from flashcore.plugins.against.comparison import as_json

    if "effect" in given:
        given["effect"] /= 100
    formats = output.parse(arguments.format, ("table", "json"))
    chosen = against.Options(arguments.against, resume=arguments.resume, **given)
    with progress.shown(arguments.quiet) as say:
        found = against.run(options.settings(arguments, upto=None), chosen, say)
    for form, file in formats:
        output.write(as_json(found) if form == "json" else text_tables.comparison(found) + "\n", file)
    return found.exit_code
