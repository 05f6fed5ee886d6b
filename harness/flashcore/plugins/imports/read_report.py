"""Reads a report of Nsight Compute, ``.ncu-rep`` or a CSV page of one, or a trace."""

from __future__ import annotations

from pathlib import Path

from flashcore.errors import RecordError, UsageError
from flashcore.plugins.imports import container, csv_pages, ncu_rep, traces
from flashcore.readers.ncu.results import Report


def read_report(path: Path) -> Report:
    """The content of a report.

    Raises:
        CapabilityError: reading it needs a package that is not installed.
        RecordError: it is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: expected a report of Nsight Compute, cannot read it: {error.strerror}") from error
    if data[:4] == container.MAGIC or path.suffix == ".ncu-rep":
        return ncu_rep.read(path, data)
    if data.startswith((traces.SQLITE, traces.GZIP, b"{")):
        return traces.read(path, data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name}: expected an .ncu-rep or a CSV page of one, found neither ({error})") from error
    return csv_pages.read(path, text)
