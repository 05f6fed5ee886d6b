"""The Python API of imports: a report's kernels as a run, for notebooks and scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashcore.api import Run
from flashcore.errors import RecordError, UsageError
from flashcore.model import plugin
from flashcore.model.record import Facts
from flashcore.plugins.imports import container, csv_pages, ncu_rep, traces
from flashcore.plugins.imports.assemble import record_of
from flashcore.readers.ncu.results import Report
from flashcore.records import soundness, store


def import_report(*files: Path | str) -> Run:
    """The run that ``flashcore import`` would record of these reports of one kind of GPU; nothing is written.

    Raises:
        CapabilityError: reading a report needs a package that is not installed.
        RecordError: a report is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
        FlashcoreError: the reports do not make one record.
    """
    record = record_of(store.new_id(), [read_report(Path(file)) for file in files])
    # As when a run is written: a value that is no number is unmeasured.
    facts = [replace(f, value=value, detail=detail) for f in record.facts for value, detail in [soundness.measured(f)]]
    return Run(replace(record, facts=Facts(facts)))


def read_report(path: Path) -> Report:
    """Returns the content of an ``.ncu-rep``, a CSV page of one, or a trace; or what a plugin reads from files with
    this suffix.

    Raises:
        CapabilityError: reading it needs a package that is not installed.
        RecordError: it is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
    """
    if reader := plugin.entry("readers", path.suffix):
        report: Report = plugin.resolve(reader)(path)
        return report
    try:
        data = path.read_bytes()
    except OSError as error:
        expected = "expected a report (.ncu-rep, CSV or trace)"
        raise UsageError(f"{path}: {expected}, cannot read it: {error.strerror}") from error
    if data[:4] == container.MAGIC or path.suffix == ".ncu-rep":
        return ncu_rep.read(path, data)
    if data.startswith((traces.SQLITE, traces.GZIP, b"{")):
        return traces.read(path, data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name}: expected an .ncu-rep or a CSV page of one, found neither ({error})") from error
    return csv_pages.read(path, text)
