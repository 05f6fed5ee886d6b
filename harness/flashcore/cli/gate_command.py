"""What ``flashcore gate`` and ``flashcore baseline`` do, between the command line and the modules."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from datetime import date
from pathlib import Path

from flashcore.analysis import explain
from flashcore.errors import Exit
from flashcore.gate import baseline, judge, regressions
from flashcore.gate import formats as formats_module
from flashcore.model.files import write_atomically
from flashcore.model.record import Record
from flashcore.model.suite import Tier


def baseline_path(record: Record, named: str | None = None) -> Path:
    """Where the baseline of the record's suite lies: what the user names, else what the manifest does."""
    return Path(named) if named is not None else Path(record.suite.root) / record.suite.gate.baseline


def gate(
    record: Record,
    *,
    formats: Sequence[str],
    require: Tier,
    today: date,
    variants: Collection[str] | None,
    held_to: Path | None,
    ratchet: bool = False,
    what_if: bool = False,
) -> Exit:
    """Judges, writes the outputs and, with ``ratchet``, tightens the baseline that is kept with room to spare.

    Args:
        held_to: the baseline's file, if the record is to be held to one. It need not exist.

    Raises:
        UsageError: a format, or the baseline, cannot be read.
    """
    old = baseline.read(held_to) if held_to is not None else None
    judgement = judge.judge(record, require=require, today=today, variants=variants, baseline=old)
    formats_module.write(formats, judgement, record)
    if what_if:
        print("\n".join(explain.occupancy_table(record)))
    if ratchet and held_to is not None and judgement.exit_code is not Exit.INCAPABLE:
        _report(_save(record, old, held_to, ratchet=True), held_to)
        for line in regressions.slack(record):
            print(f"slack in the manifest: {line}", file=sys.stderr)
    return judgement.exit_code


def save(record: Record, file: Path, *, ratchet: bool) -> Exit:
    """Writes the present facts as the baseline. What is worse than the old one is kept, and exits 1."""
    saved = _save(record, baseline.read(file), file, ratchet=ratchet)
    _report(saved, file)
    return Exit.FAILED if saved.kept else Exit.OK


def _save(record: Record, old: baseline.Baseline | None, file: Path, *, ratchet: bool) -> baseline.Saved:
    saved = baseline.save(record, old, ratchet=ratchet)
    text = saved.baseline.text()
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        write_atomically(file, text.encode())
    return saved


def _report(saved: baseline.Saved, file: Path) -> None:
    for words in saved.tightened:
        print(f"tightened: {words}", file=sys.stderr)
    for words in saved.kept:
        print(f"not loosened: {words}", file=sys.stderr)
    print(f"{file}: {len(saved.baseline.values)} facts, nvcc {saved.baseline.nvcc}", file=sys.stderr)
