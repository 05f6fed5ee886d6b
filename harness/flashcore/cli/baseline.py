"""``flashcore baseline save``: writes the baseline that the gate compares static facts with."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashcore.cli import build, options, progress
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline
from flashcore.gate.baseline import Baseline
from flashcore.model.files import write_atomically
from flashcore.model.record import Record
from flashcore.model.text import count
from flashcore.pipeline.judging import baseline_path
from flashcore.pipeline.make_record import present_record

EXAMPLES = (
    ("flashcore baseline save", "the current facts of every variant"),
    ("flashcore baseline save --variant wide", "only one variant's"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("save",), metavar="save")
    options.add_cases(parser)
    options.add_quiet(parser)
    parser.add_argument("--ratchet", action="store_true", help="only tighten existing facts")


def run(arguments: argparse.Namespace) -> int:
    with progress.shown(arguments.quiet) as say:
        record = present_record(options.settings(arguments, upto=None), say)
    file = baseline_path(record.suite, new=True)
    return save(record, baseline.read(file), file, ratchet=arguments.ratchet)


def save(record: Record, old: Baseline | None, file: Path, *, ratchet: bool) -> Exit:
    """Writes the current facts as the baseline. Facts worse than the old ones, and those of variants that do not build,
    keep their lines; then the command exits 1 (4 if the machine stopped every failed compilation)."""
    saved = baseline.save(record, old, ratchet=ratchet)
    if not saved.baseline.values:
        raise UsageError(f"{file}: expected static facts to write, found none: nothing was built")
    for name in saved.failed:
        print(f"not saved: {name} does not build or has no launch plan; its facts stay as they were", file=sys.stderr)
    text = saved.baseline.text()
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        write_atomically(file, text.encode())
    for name in saved.gone:
        print(f"removed: {name}, which is no longer built or launched", file=sys.stderr)
    for words in saved.tightened:
        print(f"tightened: {words}", file=sys.stderr)
    for words in saved.regressions:
        print(f"not loosened: {words}", file=sys.stderr)
    print(
        f"{file}: {count(len(saved.baseline.values), 'fact')}, {baseline.words(saved.baseline.compilers)}",
        file=sys.stderr,
    )
    code = build.exit_code(record.artifacts, record.plans)
    return Exit.FAILED if saved.regressions or (saved.failed and code is Exit.OK) else code
