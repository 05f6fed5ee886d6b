"""``flashcore publish``: packs a run among the published ones, and writes the page of all runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.gate import judge
from flashcore.gate.wording import summary
from flashcore.model import plugin
from flashcore.model.files import write_atomically
from flashcore.model.record import Record
from flashcore.pipeline.judging import today
from flashcore.plugins.runs.index import Index
from flashcore.records import lookup, store
from flashcore.records.lookup import PACKED
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, missing

#: How many runs are judged for the page: reading and judging one takes seconds.
MOST_JUDGED = 12

EXAMPLES = (
    ("flashcore publish 20260103", "pack a run into profiles/, to commit it"),
    ("flashcore publish", "only write the page of all runs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("published", nargs="*", metavar="RUN", help="runs to publish (none: only write the page)")
    options.add_places(parser)
    text = "folder for runs.html, next to the runs' reports (default: %(default)s)"
    parser.add_argument("-o", "--output", default="reports", metavar="DIR", help=text)


def run(arguments: argparse.Namespace) -> int:
    profiles, folder = Path(arguments.profiles), Path(arguments.output)
    timed = {point.run for point in Index([profiles]).points("time")}
    for name in arguments.published:
        recorded = lookup.find(profiles, name)
        if recorded.name not in timed:
            raise UsageError(f"run {recorded.name}: expected times to publish, found none\n  hint: flashcore bench")
        file = profiles / f"{recorded.name}{PACKED}"
        if isinstance(recorded, Path):
            write_atomically(file, plugin.resolve("flashcore.plugins.pack.command:packed")(recorded))
        print(f"{file}: to publish it, git add {file}")
    runs = []
    for place, path in enumerate(lookup.all_runs(profiles)):
        record = store.read(path)
        judgement = judge.judge(record, today=today()) if place < MOST_JUDGED else None
        report = f"{record.id}/index" if (folder / record.id / "index.html").is_file() else ""
        runs.append(run_row(record, judgement, report, (profiles / f"{record.id}{PACKED}").is_file()))
    if not runs:
        raise UsageError(f"{profiles}: expected recorded runs, found none\n  hint: --profiles DIR")
    print(write(runs, folder))
    return Exit.OK


def write(runs: Sequence[Sequence[Cell]], folder: Path) -> Path:
    """Writes ``runs.html`` into ``folder``.

    Args:
        runs: rows of :func:`run_row`.

    Raises:
        WriteError: it cannot be written.
    """
    return write_standalone(Path(__file__).with_name("runs.html.j2"), folder / "runs.html", "report.js", runs=runs)


def run_row(record: Record, judgement: judge.Judgement | None, report: str, published: bool) -> list[Cell]:
    """Returns a recorded run's row.

    Args:
        judgement: ``None`` if it was not judged.
        report: its overview's address, or empty.
    """
    machine, timed = record.environment, len({o.case for o in record.outcomes if not o.origin})
    if judgement is None:
        gate = missing("older than the runs that are judged for this page")
    else:
        failed = judgement.counts()["fail"]
        mark = "fail" if failed else "pass" if judgement.limits and not judgement.gaps else "unmeasured"
        gate = Cell(f"{failed} failed" if failed else mark, title=summary(judgement), sort=mark, mark=mark)
    return [
        Cell(record.id, href=report, title="" if report else f"flashcore report {record.id} renders it"),
        Cell(record.created.replace("T", " ").removesuffix("Z"), sort=record.created),
        Cell(", ".join(filter(None, (machine.gpu or "no GPU", machine.driver and f"driver {machine.driver}")))),
        Cell(record.suite.name),
        Cell(f"{timed:,}", sort=timed, kind="number"),
        Cell(f"nvcc {machine.nvcc or 'absent'}"),
        Cell((machine.git_commit or "unknown")[:12] + (" and changes" if machine.git_dirty else "")),
        gate,
        Cell("published" if published else "not published"),
    ]
