"""Renders an audit as JSON or CSV, with a row for each kernel and all its facts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from flashcore.gate import formats
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.cause import cause_text
from flashcore.model.groups import grouped
from flashcore.model.record import Record


def as_json(judgement: Judgement, record: Record, places: Places) -> str:
    """The gate's JSON, with ``kernels``: file, arch, kernel, ``facts`` by name, and why others are ``unmeasured``."""
    data = {**json.loads(formats.as_json(judgement, record, places)), "kernels": []}
    return formats.with_rows(data, "kernels", [*_rows(record)])


def as_csv(_judgement: Judgement, record: Record, _places: Places) -> str:
    """A line for each kernel; unmeasured facts are empty."""
    rows = [*_rows(record)]
    names = dict.fromkeys(name for row in rows for name in (*row["facts"], *row["unmeasured"]))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("file", "arch", "kernel", *names))
    writer.writerows((*list(row.values())[:3], *(row["facts"].get(name, "") for name in names)) for row in rows)
    return written.getvalue()


def _rows(record: Record) -> Iterator[Mapping[str, Any]]:
    files = {name: variant.technique for name, variant in record.suite.variants.items()}
    of_kernels = grouped((f.subject, f) for f in record.facts if f.subject.kernel and not f.subject.shape)
    for subject, facts in of_kernels.items():
        yield {
            "file": files[subject.variant],
            "arch": subject.arch,
            "kernel": subject.kernel,
            "facts": {f.name: f.value for f in facts if f.value is not None},
            "unmeasured": {f.name: cause_text(f.detail) for f in facts if f.value is None},
        }


FORMATS = {"json": as_json, "csv": as_csv}
