"""``flashcore build``: compiles, and prints what needs no GPU."""

from __future__ import annotations

import argparse

from flashcore.cli import options
from flashcore.errors import Exit

HELP = "compile every variant; print registers, spills, shared memory, occupancy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)


def run(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.pipeline import compile_ahead, run
    from flashcore.pipeline.state import printer

    job = run.start(options.settings(arguments, upto=None))
    built = compile_ahead.compile_all(job, printer())
    print(text_tables.static(job.suite, built.artifacts, built.facts))
    return Exit.FAILED if any(note.status == "failed" for note in built.notes) else Exit.OK
