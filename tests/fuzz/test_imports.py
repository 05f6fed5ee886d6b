"""Damaged and hostile pages and traces are imported or refused: `make fuzz` reads 10,000."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from flashcore.errors import FlashcoreError
from flashcore.explain.readings import Readings
from flashcore.features.reports import assemble, kernels
from flashcore.features.reports.read import read_report
from flashcore.records import store
from tests.recorded import RECORDED
from tests.support.fuzzing import SEEDS, VALUES, changed, fuzz, noised
from tests.support.traces import LAUNCHES, event, nsys_export, torch_trace, with_graphs

PAGES = ("app_raw_units", "app_details", "app_summary", "app_source")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imports")


@cache
def page(name: str) -> tuple[list[list[str]], bytes]:
    """A recorded page of a few rows and columns: its fields, and as ncu printed it."""
    lines = (RECORDED / "reports" / f"{name}.csv").read_bytes().decode().splitlines(keepends=True)
    begin = next(i for i, line in enumerate(lines) if line.startswith(('"ID"', '"Process ID"', '"File Path"')))
    rows = [row[:40] for row in csv.reader(lines[begin : begin + 24])]
    return rows, written(rows).encode()


def written(rows: list[Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([str(c) for c in (row if isinstance(row, list) else [row])] for row in rows)
    return out.getvalue()


def imported(path: Path, data: bytes) -> None:
    """Imports the file as the command does; nothing but the errors of ``errors.py`` may come out."""
    path.write_bytes(data)
    try:
        for number, part in enumerate(assemble.by_gpu([read_report(path)])):
            record = assemble.record_of(f"20260101T000000Z-{number:04x}", part)
            run = path.parent / record.id
            run.mkdir(exist_ok=True)
            store.write(record, run)
            kernels.tables(Readings(store.read(run)))
    except FlashcoreError:
        pass


@fuzz(0.05)
@given(seed=SEEDS, values=VALUES)
def test_pages(folder: Path, seed: int, values: list[Any]) -> None:
    chance = random.Random(seed)
    rows, text = page(chance.choice(PAGES))
    if chance.random() < 0.7:
        data = written(changed(rows, values, chance)).encode(errors="replace")
    else:
        data = noised(text, values, chance)
    imported(folder / "page.csv", data)


@fuzz(0.05)
@given(seed=SEEDS, values=VALUES)
def test_traces(folder: Path, seed: int, values: list[Any]) -> None:
    chance = random.Random(seed)
    trace = torch_trace([event(*launch) for launch in LAUNCHES])
    if chance.random() < 0.6:
        trace = json.dumps(changed(json.loads(trace), values, chance)).encode()
    else:
        trace = noised(trace, values, chance)
    imported(folder / "trace.json", trace)


@fuzz(0.02)
@given(seed=SEEDS, values=VALUES, make=...)
def test_exports(folder: Path, seed: int, values: list[Any], make: bool) -> None:
    chance = random.Random(seed)
    path = folder / "export.sqlite"
    path.unlink(missing_ok=True)
    build: Callable[..., Path] = with_graphs if make else nsys_export
    imported(path, noised(build(path, LAUNCHES).read_bytes(), values, chance))
