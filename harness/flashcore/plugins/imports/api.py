"""The Python API of imports: a report's kernels as a run, for notebooks and scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashcore.api import Run
from flashcore.model.record import Facts
from flashcore.plugins.imports.assemble import record_of
from flashcore.plugins.imports.read_report import read_report
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
