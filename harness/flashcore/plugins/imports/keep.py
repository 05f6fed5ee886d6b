"""Writes what was imported as a run: the record, and beside it in ``sources/`` the source texts that the reports hold,
under their names, numbered where two share one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from flashcore.model.files import write_atomically, writing
from flashcore.plugins.imports.assemble import PROBLEM, record_of
from flashcore.readers.ncu.results import Report
from flashcore.records import store

SOURCES = "sources"


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
    if sources:
        keep_sources(reports, folder / SOURCES)
    return store.complete(folder)


def keep_sources(reports: Sequence[Report], folder: Path) -> None:
    """Writes the source texts that the reports hold; without any, no folder."""
    texts = {path: text for report in reports for path, text in report.sources.items()}
    if not texts:
        return
    with writing(folder):
        folder.mkdir()
    taken: set[str] = set()
    for path, text in texts.items():
        name = PurePosixPath(path.replace("\\", "/")).name.lstrip(".") or "source"
        name = f"{len(taken)}-{name}" if name in taken else name
        taken.add(name)
        write_atomically(folder / name, text.encode("utf-8", "replace"))
