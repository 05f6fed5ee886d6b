"""Writes imported reports as a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashcore.plugins.imports.assemble import PROBLEM, record_of
from flashcore.readers.ncu.results import Report
from flashcore.records import store


def keep(
    reports: Sequence[Report], profiles: Path, *, name: str = PROBLEM, command: str = "", sources: bool = True
) -> Path:
    """Writes the run, completely or not at all, and returns its folder.

    Args:
        name: of its suite; see :func:`flashcore.plugins.imports.assemble.record_of`.
        sources: whether to keep source texts and machine code.

    Raises:
        FlashcoreError: the reports do not make one record, or it cannot be written.
    """
    run_id = store.new_id()
    record = record_of(run_id, reports, name=name, command=command, sources=sources)
    folder = store.begin(profiles, run_id)
    store.write(record, folder)
    return store.complete(folder)
