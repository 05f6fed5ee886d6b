"""Writes a chip's table of metrics, which :mod:`flashcore.chips.metric_tables.lookup` reads, from ncu or NVIDIA's
library of metrics."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

from flashcore.chips.metric_tables.lookup import Table
from flashcore.errors import CapabilityError
from flashcore.measure.machine.ncu import find_ncu, last_lines
from flashcore.model.files import write_atomically, writing
from flashcore.plugins.metrics import nvperf

_ROW = re.compile(r"^(?P<name>[A-Za-z]\S*__\S+)\s+(?P<kind>Counter|Ratio|Throughput)\s+(?P<unit>\S+)\s")


def parse_query(text: str, chip: str) -> Table:
    """The table of metrics in the output of ``ncu --query-metrics``. Wrapped descriptions are skipped.

    Raises:
        CapabilityError: the text has no metric.
    """
    kinds = {m["name"]: m["kind"] for line in text.splitlines() if (m := _ROW.match(line))}
    if not kinds:
        raise CapabilityError(
            f"ncu --query-metrics --chips {chip}: expected a list of metrics, found: {last_lines(text)}",
            "name a chip of `ncu --list-chips`, or use another ncu",
        )
    return Table(chip, kinds)


def learn(chip: str, file: Path, ncu: Path | None = None) -> Path:
    """Asks ncu for a chip's metrics, or where there is none the library that ncu asks, and writes its table;
    needs no GPU. Gives the file.

    Args:
        file: the table to write.
        ncu: Nsight Compute's command; looked for if ``None``.

    Raises:
        CapabilityError: there is neither, or it does not know the chip.
        FlashcoreError: the table cannot be written.
    """
    made = _listed(chip, ncu)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, packed(made))
    return file


def _listed(chip: str, ncu: Path | None) -> Table:
    try:
        ncu = ncu or find_ncu()
    except CapabilityError as no_ncu:
        try:
            library = nvperf.find()
        except CapabilityError as error:
            raise CapabilityError(f"{no_ncu.what}; {error.what}", error.hint) from None
        return Table(chip, nvperf.metrics(library, chip), nvperf.name_of(library))
    argv = [str(ncu), "--query-metrics", "--chips", chip]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityError(f"{ncu} gave no list of metrics: {error}", "put another ncu on PATH") from None
    return parse_query(done.stdout if done.returncode == 0 else done.stdout + done.stderr, chip)


def packed(table: Table) -> bytes:
    """A table's file; the same metrics give the same bytes."""
    return gzip.compress(table.text().encode(), compresslevel=9, mtime=0)
