"""Reads ``.ncu-rep`` files with NVIDIA's reader in a child process. A damaged file is refused, never read in part."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from flashcore.errors import MissingPackage, RecordError
from flashcore.features.reports import container
from flashcore.machine import python_process
from flashcore.machine.ncu import RAW_PAGE
from flashcore.model.catalogue import spec_of
from flashcore.model.causes import Caches
from flashcore.model.record import CountedInstruction, Dim3
from flashcore.readers.ncu.results import Finding, Metric, Report, Result

_CHILD = "flashcore.features.reports.report_child"
_TIME_LIMIT = 300.0


def read(path: Path, data: bytes) -> Report:
    """Reads a report, whose file holds ``data``.

    Raises:
        MissingPackage: the package ncu-report is not installed.
        RecordError: the file is no report, cut short or damaged, or holds no result.
    """
    blocks = container.read(data, path.name)
    if importlib.util.find_spec("ncu_report") is None:
        raise MissingPackage(
            path.name, "ncu-report", f"; or export it where ncu is: {EXPORT.format(path.name, RAW_PAGE, 'report')}"
        )
    parts = content(path)
    results = parts["results"]
    if not results or (blocks.results is not None and blocks.results != len(results)):
        expected = "results" if blocks.results is None else f"{blocks.results} results"
        raise _damaged(path, f"expected {expected}, found {len(results)} that can be read")
    names = sorted({name for result in results for name in result["metrics"]})
    if odd := next((name for name in names if spec_of(name) is None), None):
        raise _damaged(path, f"a metric is called {odd[:60]!r}")
    sources = {file: text.encode("utf-8", "replace").decode() for file, text in parts["sources"].items()}
    return Report(
        path.name,
        tuple(_result(r, path, blocks.command) for r in results),
        sources,
        {name: _code(rows, sources) for name, rows in parts["code"].items()},
        parts["reader"],
        blocks,
    )


#: The command that exports a file where ncu is installed, so that it can be read here without guessing.
EXPORT = "LC_ALL=C ncu --import {} --csv {} > {}.csv"


def content(path: Path) -> dict[str, Any]:
    """The report's content as a child process writes it; see :mod:`flashcore.features.reports.report_child`."""
    with tempfile.TemporaryDirectory(prefix="flashcore-import-") as folder:
        out = Path(folder) / "report.json"
        try:
            done = subprocess.run(
                python_process.command(_CHILD, str(path.resolve()), str(out)),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIME_LIMIT,
                check=False,
                env=python_process.environment(),
            )
        except subprocess.TimeoutExpired:
            raise _damaged(path, f"the reader gave no answer within {_TIME_LIMIT:g} s") from None
        if done.returncode != 0 or not out.is_file():
            message = (done.stderr.strip().splitlines() or ["nothing"])[-1][:200]
            raise _damaged(path, f"the reader died with exit code {done.returncode}: {message}")
        parts: dict[str, Any] = json.loads(out.read_bytes())
    if "error" in parts:
        raise _damaged(path, str(parts["error"]))
    return parts


def _code(rows: list[list[Any]], sources: dict[str, str]) -> tuple[CountedInstruction, ...]:
    lines = {path: text.split("\n") for path, text in sources.items()}

    def text(file: str, line: int) -> str:
        source = lines.get(file, ())
        return source[line - 1].strip() if 0 < line <= len(source) else ""

    return tuple(
        CountedInstruction(offset, sass, file, line, text(file, line), {}) for offset, sass, file, line in rows
    )


def _damaged(path: Path, why: str) -> RecordError:
    return RecordError(
        f"{path.name}: expected a complete Nsight Compute report; {why}\n  hint: copy it again, or profile again"
    )


def _result(row: dict[str, Any], path: Path, command: str) -> Result:
    metrics = {name: Metric(*parts) for name, parts in row["metrics"].items()}
    caches = None if command else Caches(kept=None)
    if re.search(r"--cache-control[ =]none\b", command):
        caches = Caches(kept=True)

    def number(name: str) -> int:
        value = metrics[name].value if name in metrics else None
        if not isinstance(value, (int, float)) or not 0 <= value < 1 << 40:
            raise _damaged(path, f"result {row['id']} ({row['kernel'][:60]}) has no sound {name}")
        return int(value)

    def dims(name: str) -> Dim3:
        if row["workload"] != "kernel":
            return (0, 0, 0)  # several launches have no single size
        return tuple(number(f"launch__{name}_dim_{axis}") for axis in "xyz")  # type: ignore[return-value]

    kind = "device__attribute_compute_capability_"
    return Result(
        **row
        | {
            "grid": dims("grid"),
            "block": dims("block"),
            "cc": (number(f"{kind}major"), number(f"{kind}minor")),
            "metrics": metrics,
            "findings": tuple(Finding(*parts) for parts in row["findings"]),
            "ranges": tuple(row["ranges"]),
            "caches": caches,
        }
    )
