"""``flashcore judge SUITE CANDIDATE…``: a verdict for each candidate."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flashcore.cli import options, output, progress
from flashcore.errors import Exit, UsageError, worst
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load
from flashcore_judge import judging
from flashcore_judge.candidate import MANIFEST
from flashcore_judge.verdict import Verdict, write

EXAMPLES = (
    ("flashcore judge examples/row_softmax my_candidate", "a folder with candidate.json and cubins, or sources"),
    ("flashcore judge examples/row_softmax candidates/", "each folder in it"),
)
_CODES = {"accepted": Exit.OK, "rejected": Exit.FAILED, "unmeasured": Exit.UNMEASURED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_quiet(parser)
    parser.add_argument("suite", metavar="SUITE", help="the suite's folder, which is trusted")
    parser.add_argument(
        "candidates", metavar="CANDIDATE", nargs="+", help=f"a folder with {MANIFEST}, or a folder of such"
    )
    parser.add_argument("-o", "--output", metavar="DIR", default="verdicts", help="the verdicts (default: %(default)s)")
    parser.add_argument("--board", metavar="FILE", help="render all verdicts of the folder as a page")
    parser.add_argument(
        "--limit",
        type=float,
        default=judging.SECONDS,
        metavar="S",
        help="a candidate's time on the GPU; longer, it is unmeasured (default: %(default)s s)",
    )
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    suite = load(suite_folder(arguments.suite))
    codes, paths = [Exit.OK], []
    with progress.shown(arguments.quiet) as say:
        for _, verdict in judging.judge_all(suite, _folders(arguments.candidates), say, arguments.limit):
            paths.append(write(verdict, Path(arguments.output)))
            if arguments.format == "table":
                print(f"{line(verdict)}  {paths[-1]}")
            codes.append(_CODES[verdict.status])
    if arguments.format == "json":
        print(output.document(verdicts=[json.loads(path.read_bytes()) for path in paths]))
    if arguments.board:
        from flashcore_judge import board  # needs jinja2

        board.write(Path(arguments.output), Path(arguments.board))
    return worst(codes)


def _folders(given: list[str]) -> list[Path]:
    """The candidates' folders.

    Raises:
        UsageError: there is none in one of these.
    """
    made = []
    for folder in map(Path, given):
        inside = [folder] if (folder / MANIFEST).is_file() else sorted(p.parent for p in folder.glob(f"*/{MANIFEST}"))
        if not inside:
            raise UsageError(f"{folder}: expected {MANIFEST} in it, or in its folders, found none")
        made += inside
    return made


def line(verdict: Verdict) -> str:
    """A verdict in one line."""
    times = [f"{one['shape']} {cold['us']:.2f} us" for one in verdict.shapes if (cold := one["times"].get("cold"))]
    reasons = "; ".join(verdict.reasons[:2])
    return f"{verdict.candidate[:16]}  {verdict.status:10}  {reasons or ', '.join(times)}"
