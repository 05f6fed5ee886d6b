"""``flashcore publish``: adds a run's times to the history, and writes the page of all runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.gate import judge
from flashcore.gate.wording import summary
from flashcore.model.files import write_atomically
from flashcore.model.record import Record
from flashcore.model.text import significant
from flashcore.pipeline.judging import today
from flashcore.plugins.history import history
from flashcore.plugins.history.history import Line
from flashcore.records import lookup, store
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, missing, number_cell, words

#: How many runs are judged for the page: reading and judging one takes seconds.
MOST_JUDGED = 12
#: A sparkline's size in CSS pixels.
WIDTH, HEIGHT = 90, 20

EXAMPLES = (
    ("flashcore publish 20260103", "add a run's times to profiles/history.csv"),
    ("flashcore publish", "only write the page of all runs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("published", nargs="*", metavar="RUN", help="runs to publish (none: only write the page)")
    options.add_places(parser)
    text = "folder for runs.html, next to the runs' reports (default: %(default)s)"
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
        runs.append(run_row(record, judgement, report, record.id in published))
    if not runs and not rows:
        raise UsageError(f"{profiles}: expected recorded runs or a history.csv, found neither\n  hint: --profiles DIR")
    print(write(runs, rows, folder))
    return Exit.OK


def write(runs: Sequence[Sequence[Cell]], rows: Sequence[Line], folder: Path) -> Path:
    """Writes ``runs.html`` into ``folder``.

    Args:
        runs: rows of :func:`run_row`.

    Raises:
        WriteError: it cannot be written.
    """
    cases = history.series(rows)
    return write_standalone(
        Path(__file__).with_name("runs.html.j2"),
        folder / "runs.html",
        "report.js",
        runs=runs,
        cases=[_case(key, lines) for key, lines in cases.items()],
        size=(WIDTH, HEIGHT),
    )


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


def _case(key: tuple[str, ...], rows: Sequence[Line]) -> dict[str, Any]:
    suite, gpu, variant, shape, params = key
    last, regime = rows[-1], history.regime(rows)
    times = [(r, t) for r in rows if (t := r.us(regime)) is not None]
    changes, time, ratio = "first time", missing("this run has no time in the regime"), Cell("–", kind="number")
    if times and times[-1][0] is last:
        now = times[-1][1]
        time = number_cell(now, 4, f"{now} µs in run {last.run}")
        if len(times) > 1:
            before, was = times[-2]
            ratio = Cell(f"{significant(was / now, 3)} ×", sort=was / now, kind="number")
            changes = ", ".join(history.changes(before, last).values()) or "nothing that is recorded"
    cells = [Cell(variant), Cell(shape, title=params), Cell(words(regime)), time, ratio, Cell(changes)]
    return {"cells": [*cells, Cell(f"{gpu}, {suite}")], **_spark(times)}


def _spark(times: Sequence[tuple[Line, float]]) -> dict[str, Any]:
    """Times from the oldest run to the newest, 0 at the bottom; a tick where driver, compiler or clock changed."""
    us = [t for _, t in times]
    step = (WIDTH - 8) / max(1, len(us) - 1)
    points = [(4 + i * step, HEIGHT - 3 - (HEIGHT - 6) * t / max(us)) for i, t in enumerate(us)]
    machines = [history.changes(times[i - 1][0], times[i][0]).keys() - {"code"} for i in range(1, len(us))]
    ticks = [x for (x, _), changed in zip(points[1:], machines, strict=True) if changed]
    return {"points": points, "ticks": ticks, "label": ", ".join(f"{t:g}" for t in us)}
