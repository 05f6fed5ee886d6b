"""``flashcore build``: compiles, and prints what needs no GPU."""

from __future__ import annotations

import argparse
from dataclasses import replace

from flashcore.cli import options, progress, text_tables
from flashcore.errors import Exit
from flashcore.measure.compiling import compile_all
from flashcore.pipeline.opening import open_context


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)


def run(arguments: argparse.Namespace) -> int:
    context = open_context(options.settings(arguments, upto=None))
    with progress.shown(arguments.quiet) as say:
        built = compile_all(replace(context, say=say))
    print(text_tables.static(context.suite, built.artifacts, built.facts))
    return Exit.FAILED if any(note.status == "failed" for note in built.notes) else Exit.OK
