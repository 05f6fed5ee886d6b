"""``flashcore publish``: puts a run's times into the history, and draws the page of all runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.gate import judge
from flashcore.model.files import write_atomically
from flashcore.pipeline.judging import today
from flashcore.plugins.history import history, runs_page
from flashcore.records import lookup, store

#: How many runs are judged for the page: reading and judging one takes seconds.
MOST_JUDGED = 12

EXAMPLES = (
    ("flashcore publish 20260103", "add a run's times to profiles/history.csv"),
    ("flashcore publish", "only draw the page of all runs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("published", nargs="*", metavar="RUN", help="runs to publish (none: only draw the page)")
    options.add_places(parser)
    text = "where runs.html goes, beside the runs' reports (default: %(default)s)"
    parser.add_argument("-o", "--output", default="reports", metavar="DIR", help=text)


def run(arguments: argparse.Namespace) -> int:
    profiles, folder = Path(arguments.profiles), Path(arguments.output)
    table = profiles / "history.csv"
    rows = history.read(table.read_text(encoding="utf-8"), str(table)) if table.is_file() else []
    for name in arguments.published:
        record = store.read(lookup.find(profiles, name))
        lines = history.lines(record)
        if not lines:
            raise UsageError(f"run {record.id}: expected times to publish, found none\n  hint: flashcore bench")
        rows = [r for r in rows if r.run != record.id] + lines
        write_atomically(table, history.written(rows).encode())
        file = profiles / f"{record.id}{lookup.PACKED}"
        print(f"{table}: {len(lines)} cases of {record.id}")
        print(f"  to publish it: flashcore pack {record.id} -o {file} && git add {file} {table}")
    published = {r.run for r in rows}
    runs = []
    for place, path in enumerate(lookup.all_runs(profiles)):
        record = store.read(path)
        judgement = judge.judge(record, today=today()) if place < MOST_JUDGED else None
        report = f"{record.id}/index" if (folder / record.id / "index.html").is_file() else ""
        runs.append(runs_page.Run(record, judgement, report, record.id in published))
    if not runs and not rows:
        raise UsageError(f"{profiles}: expected recorded runs or a history.csv, found neither\n  hint: --profiles DIR")
    print(runs_page.write(runs, rows, folder))
    return Exit.OK
