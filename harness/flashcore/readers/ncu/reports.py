"""``.ncu-rep`` files, by NVIDIA's own reader in a child process. A damaged file is refused, never read in part."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, RecordError
from flashcore.measure.machine import python_process
from flashcore.model.catalogue import spec_of
from flashcore.model.record import Instruction
from flashcore.readers.ncu import container
from flashcore.readers.ncu.raw_page import Dim3
from flashcore.readers.ncu.results import Finding, Metric, Report, Result

_CHILD = "flashcore.readers.ncu.report_child"
_TIME_LIMIT = 300.0


def read(path: Path, data: bytes) -> Report:
    """Reads a report, whose file holds ``data``.

    Raises:
        CapabilityError: the package ncu-report is not installed.
        RecordError: the file is no report, cut short or damaged, or holds no result.
    """
    whole = container.read(data, path.name)
    if importlib.util.find_spec("ncu_report") is None:
        raise CapabilityError(
            f"{path.name}: reading a report needs NVIDIA's Python package ncu-report, found none",
            "pip install ncu-report, or install flashcore with its extra `ncu`; "
            f"or export it where ncu is: {EXPORT.format(path.name)}",
        )
    found = _asked(path)
    results = found["results"]
    if not results or (whole.results is not None and whole.results != len(results)):
        held = "results" if whole.results is None else f"{whole.results} results"
        raise _damaged(path, f"expected {held}, found {len(results)} that can be read")
    return Report(
        path.name,
        tuple(_result(r, path, whole.command) for r in results),
        found["sources"],
        {name: _code(rows, found["sources"]) for name, rows in found["code"].items()},
        found["reader"],
        whole,
    )


#: The command that exports a file where ncu is installed, so that it can be read here without guessing.
EXPORT = "LC_ALL=C ncu --import {} --csv --page raw --print-units base --print-metric-instances details > report.csv"


def _asked(path: Path) -> dict[str, Any]:
    """What the child found."""
    with tempfile.TemporaryDirectory(prefix="flashcore-import-") as folder:
        out = Path(folder) / "report.json"
        argv = python_process.command(_CHILD, str(path.resolve()), str(out))
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT, check=False,
                env=python_process.environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _damaged(path, f"the reader gave no answer within {_TIME_LIMIT:g} s") from None
        if done.returncode != 0 or not out.is_file():
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1][:200]
            raise _damaged(path, f"the reader died with exit code {done.returncode} and said: {said}")
        found: dict[str, Any] = json.loads(out.read_bytes())
    if "error" in found:
        raise _damaged(path, str(found["error"]))
    return found


def _code(rows: list[list[Any]], sources: dict[str, str]) -> tuple[Instruction, ...]:
    lines = {path: text.split("\n") for path, text in sources.items()}

    def text(file: str, line: int) -> str:
        known = lines.get(file, ())
        return known[line - 1].strip() if 0 < line <= len(known) else ""

    return tuple(Instruction(offset, sass, file, line, text(file, line), {}) for offset, sass, file, line in rows)


def _damaged(path: Path, why: str) -> RecordError:
    return RecordError(
        f"{path.name}: expected a whole report of Nsight Compute; {why}\n  hint: copy it again, or profile again"
    )


@functools.cache  # each result has the same thousands of names
def _is_metric(name: str) -> bool:
    return spec_of(name) is not None


def _result(found: dict[str, Any], path: Path, command: str) -> Result:
    metrics = {name: Metric(*row) for name, row in found["metrics"].items()}
    if odd := next((name for name in metrics if not _is_metric(name)), None):
        raise _damaged(path, f"result {found['id']} has a metric called {odd[:60]!r}")
    caches = "" if command else "cache control unknown"
    if re.search(r"--cache-control[ =]none\b", command):
        caches = "cache-control none"

    def number(name: str) -> int:
        value = metrics[name].value if name in metrics else None
        if not isinstance(value, (int, float)) or not 0 <= value < 1 << 40:
            raise _damaged(path, f"result {found['id']} ({found['kernel'][:60]}) has no sound {name}")
        return int(value)

    def dims(what: str) -> Dim3:
        if found["workload"] != "kernel":
            return (0, 0, 0)  # several launches have no single size
        return tuple(number(f"launch__{what}_dim_{axis}") for axis in "xyz")  # type: ignore[return-value]

    kind = "device__attribute_compute_capability_"
    return Result(
        id=found["id"],
        kernel=found["kernel"],
        workload=found["workload"],
        grid=dims("grid"),
        block=dims("block"),
        cc=(number(f"{kind}major"), number(f"{kind}minor")),
        metrics=metrics,
        findings=tuple(Finding(*row) for row in found["findings"]),
        ranges=tuple(found["ranges"]),
        code=found["code"],
        mangled=found["mangled"],
        caches=caches,
    )
