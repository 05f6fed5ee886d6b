"""Reads a report of any kind."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

from flashcore.errors import RecordError, UsageError
from flashcore.features.reports import benchmarks, container, csv_pages, ncu_rep, traces
from flashcore.readers.ncu.results import Report


def read_report(path: Path) -> Report:
    """Returns the content of an ``.ncu-rep``, a CSV page of one, a trace, or JSON of a benchmark, compressed or not.

    Raises:
        CapabilityError: reading it needs a package that is not installed.
        RecordError: it is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        expected = "expected a report (.ncu-rep, CSV, trace or JSON of a benchmark)"
        raise UsageError(f"{path}: {expected}, cannot read it: {error.strerror}") from error
    if data.startswith(b"\x1f\x8b"):
        with tempfile.TemporaryDirectory(prefix="flashcore-import-") as folder:
            unpacked = Path(folder) / path.name
            try:
                unpacked.write_bytes(gzip.decompress(data))
            except (OSError, EOFError, zlib.error) as error:
                expected = f"{path.name}: expected a whole gzip file, found it cut short or damaged"
                raise RecordError(f"{expected} ({error})\n  hint: copy it again") from error
            return read_report(unpacked)
    if data[:4] == container.MAGIC or path.suffix == ".ncu-rep":
        return ncu_rep.read(path, data)
    if data.startswith(traces.SQLITE):
        return traces.read(path)
    if data.startswith(b"NVIDIA Tegra Profiler") or path.suffix in (".nsys-rep", ".qdrep"):
        hint = f"nsys export --type sqlite {path.name}, and import the .sqlite"
        raise RecordError(f"{path.name}: expected an export, found a report of Nsight Systems\n  hint: {hint}")
    notes: tuple[str, ...] = ()
    try:
        text = data.decode(json.detect_encoding(data))  # UTF-8, 16 or 32, by its byte order mark or its zeros
    except UnicodeDecodeError as error:
        if b"\0" in data:
            expected = "expected an .ncu-rep or a CSV page of one, found neither"
            raise RecordError(f"{path.name}: {expected} ({error})\n  hint: unpack an archive first") from error
        text = data.decode("cp1252", "backslashreplace")
        notes = ("it is not UTF-8, and was read as Windows-1252: letters beyond ASCII may be others",)
    is_json = text.lstrip().startswith(("{", "["))
    is_timed = is_json and '"benchmarks"' in text and '"traceEvents"' not in text
    report: Report = (benchmarks if is_timed else traces if is_json else csv_pages).read(path, text)
    return replace(report, notes=(*notes, *report.notes))
