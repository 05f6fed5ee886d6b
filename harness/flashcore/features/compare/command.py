"""``flashcore compare``: what changed between two records."""

from __future__ import annotations

import argparse
import math
import sys

from flashcore.cli import comparison, options, output, progress, terminal
from flashcore.errors import Exit, UsageError
from flashcore.explain.compare_records import compare, lost_times
from flashcore.explain.comparison import REGRESSIONS, Comparison
from flashcore.features.compare import sides
from flashcore.pipeline.judging import Rules, judge_record

TOP = 20

EXAMPLES = (
    ("flashcore compare 20260102T03 20260103", "two recorded runs"),
    ("flashcore compare HEAD~1", "a git revision and the present sources"),
    ("flashcore compare old.whl new.whl", "the kernels in two versions of a wheel"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = f"a run's id or folder, a packed run, a git revision, compiled files, a report, or {sides.TREE} for the "
    parser.add_argument("a", metavar="A", help=f"{text}working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=sides.TREE, help="likewise (default: %(default)s)")
    options.add_cases(parser)
    options.add_records(parser)
    options.add_quiet(parser)
    output.add_format(parser)
    text = "most cases and kernels to print, the largest changes first; 0: all (default: %(default)s)"
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=text)
    parser.add_argument("--regressions", action="store_true", help="print only what became slower or worse")
    text = "percent by which a time may get slower: exit 1 if one is slower or code is worse, 3 if a time is missing"
    parser.add_argument("--effect", type=float, metavar="PCT", help=f"{text} (default: exit 0)")
    parser.add_argument("-o", "--output", metavar="DIR", help="also write a report of B, whose page Compare has both")
    parser.add_argument("--single-file", action="store_true", help="with -o: one HTML file instead of a folder")


def run(arguments: argparse.Namespace) -> int:
    if arguments.effect is not None and not 0 <= arguments.effect < math.inf:
        raise UsageError(f"--effect {arguments.effect:g}: expected percent, from 0")
    options.require_top(arguments)
    if arguments.output:
        from flashcore.pipeline import pages  # reports a missing jinja2 before anything is built
    with progress.shown(arguments.quiet) as say:
        a, b = sides.records(arguments, say)
    compared, json = compare(a, b), arguments.format == "json"
    text = comparison.as_text(compared, arguments.top, only_worse=arguments.regressions)
    print(comparison.as_json(compared) if json else terminal.painted(text))
    if arguments.output:
        target = pages.ReportTarget(arguments.output, arguments.single_file)
        judged = judge_record(Rules(compare=False), b)
        written = pages.write(target, judged, against=a, places=options.places(arguments))
        page = next((file for file in written if file.stem == "compare"), written[0])
        print(page, file=sys.stderr if json else None)
    return Exit.OK if arguments.effect is None else _exit(compared, lost_times(a, b), arguments.effect / 100)


def _exit(compared: Comparison, is_lost: bool, effect: float) -> Exit:
    """How a comparison ends by a limit on each slower time, which also judges those of two runs.

    Args:
        is_lost: a case of both sides lacks a time that it had.
    """
    changes = [change for row in compared.rows for change in row.changes]
    slower = [change for change in changes if change.speedup and change.outcome == "slower"]
    worse = any(row.outcome in REGRESSIONS and not (row.lead and row.lead.speedup) for row in compared.rows)
    if worse or any(not change.ratio or 1 / change.ratio > 1 + effect for change in slower):
        return Exit.FAILED
    is_empty = not (compared.cases or compared.alike[1])
    return Exit.UNMEASURED if compared.incomparable or is_lost or compared.counts["gone"] or is_empty else Exit.OK
