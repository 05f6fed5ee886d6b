"""``compute-sanitizer``: its place, its arguments, and the meaning of its counts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.settings import Tool

_PLACES = (Path("/usr/local/cuda/bin"), Path("/usr/local/cuda/compute-sanitizer"))


def find_sanitizer() -> Path:
    """``compute-sanitizer``: of ``CUDA_HOME``, on ``PATH``, or where CUDA installs it.

    Raises:
        CapabilityError: there is none.
    """
    homes = (Path(os.environ["CUDA_HOME"]) / "bin",) if os.environ.get("CUDA_HOME") else ()
    for place in (*homes, None, *_PLACES):
        if program := shutil.which("compute-sanitizer", path=None if place is None else str(place)):
            return Path(program)
    raise lacking("compute-sanitizer")


def command_line(sanitizer: Path | str, tool: Tool, log: Path, target: Sequence[str]) -> list[str]:
    """The command line that runs a target under the tool. Failed API calls are left to check: libraries make them to
    probe."""
    return [
        *(str(sanitizer), "--tool", tool, "--log-file", str(log).replace("%", "%%")),
        *("--launch-timeout", "0"),  # torch takes long to reach its first CUDA call
        *("--check-exit-code", "no"),  # the outcome of the target is in its journal
        *(("--report-api-errors", "no") if tool == "memcheck" else ()),
        *target,
    ]


# --- what the tool says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """One process' count. ``first`` is the first complaint in the tool's words."""

    errors: int
    warnings: int = 0
    first: str = ""

    @property
    def clean(self) -> bool:
        return self.errors == 0 and self.warnings == 0


_ERRORS = r"(?m)^=+ ERROR SUMMARY: ([\d,]+) errors?\s*$"
_RACECHECK = r"(?m)^=+ RACECHECK SUMMARY: [\d,]+ hazards? displayed \(([\d,]+) errors?, ([\d,]+) warnings?\)"
_LINE = r"(?m)^=+ ?(.*)$"
#: The tool did not work: its count says nothing about the kernels.
_BLIND = r"(?m)^=+ .*(?:Internal Sanitizer Error|[Oo]ut of memory|is not supported|Unsupported).*$"


def parse(text: str, tool: Tool) -> Report | str:
    """The count in a log of the tool, or why there is none."""
    if blind := re.search(_BLIND, text):
        return f"compute-sanitizer did not work: {blind[0].lstrip('= ')}"
    summary = re.search(_RACECHECK if tool == "racecheck" else _ERRORS, text)
    if summary is None:
        lines = [line.strip() for line in re.findall(_LINE, text) if line.strip()]
        return "compute-sanitizer gave no count" + (f": {' | '.join(lines[-2:])}" if lines else "")
    errors, *warnings = (int(n.replace(",", "")) for n in summary.groups())
    return Report(errors, sum(warnings), _first(text))


def _first(text: str) -> str:
    """The first complaint, with the line that says where if there is one."""
    lines = [m.rstrip() for m in re.findall(_LINE, text)]
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith(" ") and "SUMMARY" not in line and line.strip() != "COMPUTE-SANITIZER":
            where = lines[i + 1].strip() if i + 1 < len(lines) else ""
            return f"{line.strip()} {where}" if where.startswith(("at ", "by ")) else line.strip()
    return ""
