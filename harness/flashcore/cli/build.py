"""``flashcore build``: compiles, and prints what needs no GPU."""

from __future__ import annotations

import argparse

from flashcore.cli import options, progress, text_tables
from flashcore.errors import Exit
from flashcore.pipeline import compile_ahead
from flashcore.pipeline import run as pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)


def run(arguments: argparse.Namespace) -> int:
    job = pipeline.start(options.settings(arguments, upto=None))
    with progress.shown(arguments.quiet) as say:
        built = compile_ahead.compile_all(job, say)
    print(text_tables.static(job.suite, built.artifacts, built.facts))
    return Exit.FAILED if any(note.status == "failed" for note in built.notes) else Exit.OK
