"""``flashcore profile``: all of it in one go, and the four answers for the variants that the user names."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit

HELP = "all of it: build, check, bench, profile, record, report, gate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser)
    parser.add_argument("--clock-control", choices=("none", "base"), default=options.default("clock_control"),
                        help="ncu's clock control (default: %(default)s; none leaves the clocks alone)")  # fmt: skip
    parser.add_argument("--no-roofs", dest="roofs", action="store_const", const=None, default=options.default("roofs"),
                        help="do not measure this machine's roofs")  # fmt: skip
    parser.add_argument("--sanitize", action="store_true", help="besides, run it under compute-sanitizer")
    parser.add_argument("--keep-report", action="store_true", help="keep ncu's own report (.ncu-rep) in the run")
    options.add_reporting(parser)
    options.add_gating(parser)


def run(arguments: argparse.Namespace) -> int:
    import jinja2  # noqa: F401  what is missing is said before anything is built and measured

    from flashcore.cli import baseline, check, gate, inner_loop, progress, report, text_tables
    from flashcore.pipeline import run
    from flashcore.runs import lookup

    with progress.shown(arguments.quiet) as say:
        done = run.run(options.settings(arguments, upto="profile"), say, resume=arguments.resume)
        record, variants = done.record, gate.chosen(done.settings.variant, done.record)
        held_to = baseline.baseline_path(record)
        pages = report.pages(arguments, record, held_to)
        say(f"report: {len(pages)} pages in {pages[0].parent}")
    print(text_tables.ladder(record))
    verdict = gate.judged(record, require=arguments.require, variants=variants, held_to=held_to)
    if variants is not None:
        previous = lookup.latest(Path(arguments.profiles), record.suite.name, before=record.id)
        for name in variants:
            print("\n".join(inner_loop.answers(record, previous, name)))
    print(f"run:    {done.folder}\nreport: {pages[0]}")
    return max(check.failed(record), verdict, key=_gravity)


def _gravity(code: Exit) -> int:
    """A failure outweighs an unmeasured fact, which outweighs success."""
    return (Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED).index(code)
