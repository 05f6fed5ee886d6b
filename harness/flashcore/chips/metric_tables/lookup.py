"""Looks up which facts a chip's counters can measure, and by which metric. Needs no GPU.

The tables in this folder are the output of ``ncu --query-metrics --chips CHIP``, or of the library that ncu queries,
one metric per line. Each names its source; :mod:`flashcore.plugins.metrics.metric_lists` writes them. ncu silently
omits a metric that the chip lacks; this module reports it before anything runs.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flashcore.chips.devices import is_called
from flashcore.errors import UsageError
from flashcore.model.catalogue import FACTS, GROUP_STAGE, FactSpec
from flashcore.model.suite import Suite
from flashcore.model.text import did_you_mean, matches_any

TABLES = Path(__file__).parent
SUFFIX = ".txt.gz"
State = Literal["exists", "software", "derived", "lost"]
#: Chips with exactly the metrics of another chip. A learned table of the chip takes precedence.
SAME_LIST = {
    "ad102": "ad104",
    "ad103": "ad104",
    "ad106": "ad104",
    "ad107": "ad104",
    "ga103": "ga102",
    "ga104": "ga102",
    "ga106": "ga102",
    "ga107": "ga102",
    "gb102": "gb100",
    "gb203": "gb202",
    "gb205": "gb202",
    "gb206": "gb202",
    "gb207": "gb202",
}

_HEADER = "# flashcore metric table 1"
_HEADER_LINE = re.compile(_HEADER + r": (?P<chip>\w+), by (?P<source>.+)")
#: Metrics that ncu counts in software or by patching code: every chip has them, and no list of a chip names them.
_SOFTWARE = ("launch__", "sass__", "device__", "profiler__", "sm__maximum_warps_per_active_cycle_pct")
#: The roll-ups of each kind of metric.
_ROLLUPS = {
    "Counter": ("sum", "avg", "min", "max"),
    "Throughput": ("avg", "min", "max", "sum"),
    "Ratio": ("ratio", "pct", "max_rate"),
}


@dataclass(frozen=True, slots=True)
class Table:
    """The hardware metrics of one chip: name → kind (Counter, Ratio or Throughput), and their source."""

    chip: str
    metrics: Mapping[str, str]
    source: str = "ncu --query-metrics"

    def has(self, metric: str) -> bool:
        """Whether ncu has the metric, with its roll-up (``.sum``, ``.avg.per_second``, ``.pct``)."""
        if metric.startswith(_SOFTWARE):
            return True
        base, _, rollup = metric.partition(".")
        kind = self.metrics.get(base)
        return kind is not None and (not rollup or rollup.split(".")[0] in _ROLLUPS[kind])

    def text(self) -> str:
        """The content of the table's file, before compression."""
        rows = [f"{name} {kind}" for name, kind in sorted(self.metrics.items())]
        return "\n".join([f"{_HEADER}: {self.chip}, by {self.source}", *rows]) + "\n"


@dataclass(frozen=True, slots=True)
class Row:
    """A counter fact on a chip.

    ``state`` is ``exists``, ``software`` (counted by ncu, on every chip), ``derived`` (computed from others) or
    ``lost`` (the chip lacks it); ``ncu`` is the metric's name on the chip.
    """

    spec: FactSpec
    state: State
    ncu: str | None
    reason: str = ""


def chips() -> list[str]:
    """The chips that have a table, or share another chip's."""
    files = {p.name.removesuffix(SUFFIX) for p in TABLES.glob(f"*{SUFFIX}")}
    return sorted(files | {chip for chip, other in SAME_LIST.items() if other in files})


def table(chip: str, file: Path | None = None) -> Table:
    """The table of a chip.

    Raises:
        UsageError: there is none, or ``file`` is not a metric table of the chip.
    """
    path = file or TABLES / f"{chip}{SUFFIX}"
    if file is None and not path.is_file() and chip in SAME_LIST:
        other = table(SAME_LIST[chip])
        return Table(chip, other.metrics, f"{other.source} for {other.chip}, which has the same metrics")
    if file is None and not path.is_file():
        raise UsageError(
            f"chip {chip}: expected one of {', '.join(chips())}, found no table for it{did_you_mean(chip, chips())}\n"
            f"  hint: flashcore metrics --learn --chip {chip} --table FILE, with ncu or nvidia-cuda-cupti installed"
        )
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(f"{path}: expected a metric table, but it cannot be read: {error}") from error
    lines = text.splitlines()
    header = _HEADER_LINE.fullmatch(lines[0]) if lines else None
    if header is None:
        raise UsageError(f"{path}: expected a metric table, found another file")
    if header["chip"] != chip:
        raise UsageError(f"{path}: expected the table of {chip}, found that of {header['chip']}")
    rows = [line.split(" ") for line in lines[1:]]
    if not all(len(row) == 2 and row[1] in _ROLLUPS for row in rows):
        raise UsageError(f"{path}: expected `name kind` on each line, found something else")
    return Table(chip, {row[0]: row[1] for row in rows}, header["source"])


def plan(chip_table: Table) -> list[Row]:
    """Every fact that a GPU's counters measure, on this chip."""
    return [
        _row(chip_table, spec) for spec in FACTS.values() if spec.tier == "counters" and spec.group not in GROUP_STAGE
    ]


def _row(chip_table: Table, spec: FactSpec) -> Row:
    name = spec.ncu_name(chip_table.chip)
    if spec.ncu is None:
        return Row(spec, "derived", None)
    if name is None:
        return Row(spec, "lost", None, f"{chip_table.chip} has no such counter")
    for metric in (name, *((spec.weight,) if spec.weight else ())):
        if not chip_table.has(metric):
            return Row(spec, "lost", name, f"{chip_table.chip} has no {metric}")
    return Row(spec, "software" if name.startswith(_SOFTWARE) else "exists", name)


def require(chip_table: Table, names: Iterable[str]) -> None:
    """Checks that the chip's counters can measure these facts.

    Raises:
        UsageError: a name is not a counter fact, or the chip lacks facts; lists all of them.
    """
    rows = {row.spec.name: row for row in plan(chip_table)}
    missing = []
    for name in dict.fromkeys(names):
        if name not in rows:
            near = [n for n in rows if name in n or n in name][:5]
            hint = did_you_mean(name, rows) or (f" (perhaps {', '.join(near)})" if near else "")
            raise UsageError(f"{name}: expected a fact that ncu measures, found none of that name{hint}")
        if rows[name].state == "lost":
            missing.append(f"  {name}: {rows[name].reason}")
    if missing:
        raise UsageError("\n".join([f"chip {chip_table.chip}: expected metrics that it has, found", *missing]))


def require_budgets(suite: Suite, chip_table: Table, arch: str, gpu: str) -> None:
    """Refuses a suite with limits on facts that this GPU cannot measure: its gate could only exit 3.

    Raises:
        UsageError: the chip lacks facts; lists them.
    """
    names = [
        b.fact
        for b in suite.budgets
        if b.tier == "counters"
        and b.severity == "limit"
        and FACTS[b.fact].group not in GROUP_STAGE
        and (b.device is None or is_called(gpu, b.device))
        and matches_any(arch, b.archs)
    ]
    require(chip_table, names)
