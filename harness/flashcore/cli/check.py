"""``flashcore check``: checks every case's answers on this GPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from flashcore.cli import build, options, output, progress, text_tables
from flashcore.errors import Exit
from flashcore.explain.readings import Readings
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.check_references import check_references
from flashcore.pipeline.run import RecordedRun

EXAMPLES = (
    ("flashcore check", "every variant on every shape, on this GPU"),
    ("flashcore check --variant wide --repeats 5", "one variant, five times with new inputs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser, "check")
    options.add_quiet(parser)
    text = "cpu: only the problem file and its references (default: %(default)s)"
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=text)
    output.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, upto="check")
    if arguments.device == "cpu":
        with progress.shown(arguments.quiet) as say:
            record = check_references(settings, say)
    else:
        record = measured(arguments, settings).record
    show(arguments, text_tables.checked, record)
    return failed(record)


def show(arguments: argparse.Namespace, table: Callable[[Record], str], record: Record, **more: Any) -> bool:
    """Writes a run's table, or the run as JSON, with ``more``. Returns whether standard output has the table."""
    outputs = output.parse(arguments.format, ("table", "json"))
    for form, file in outputs:
        output.write(f"{as_json(record, **more) if form == 'json' else table(record)}\n", file)
    return ("table", None) in outputs


def as_json(record: Record, **more: Any) -> str:
    """``run``, ``gpu``, and ``cases``: the outcome of each in each stage (``case``, ``stage``, ``status``, ``why``),
    those that failed first, and of each that was timed the time that ranks its shape (``case``, ``mode``, ``us``, or
    ``us_reason`` where it is ``null``)."""
    readings, rows = Readings(record), list[dict[str, Any]]()
    for o in sorted(record.outcomes, key=lambda o: o.status == "ok"):
        rows.append({"case": str(o.case), "stage": o.stage, "status": o.status, "why": o.reason})
        if o.stage == "bench":
            shape = record.suite.shapes[o.shape]
            time = readings.of(shape.time, o.case)
            rows.append({"case": str(o.case), "mode": shape.rank_by, "us": time.value, "us_reason": time.why or None})
    return output.document(**more | {"run": record.id, "gpu": record.gpu, "cases": rows})


def measured(arguments: argparse.Namespace, settings: Settings) -> RecordedRun:
    """Records the run of a command that needs a GPU."""
    with progress.shown(arguments.quiet) as say:
        return pipeline.record_run(settings, say, resume=arguments.resume, needed=True)


def failed(record: Record) -> Exit:
    """The exit code of a measuring command: whether anything failed in this run."""
    bad = any(o.status == "failed" and not o.origin for o in record.outcomes)
    return Exit.FAILED if bad else build.exit_code(record.artifacts, record.plans)
