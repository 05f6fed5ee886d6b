"""Looks up which facts a chip's counters can measure, and by which metric. Needs no GPU.

The tables in this folder are the output of ``ncu --query-metrics --chips CHIP``, or of the library that ncu queries,
one metric per line, and its source; ``tools/metric_tables.py`` writes them. ncu silently omits a metric that the chip
lacks; this module reports it before anything runs.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashcore.chips.devices import is_called
from flashcore.errors import UsageError
from flashcore.model.catalogue import FACTS, GROUP_STAGE, FactSpec
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any

TABLES = Path(__file__).parent
SUFFIX = ".txt.gz"
#: Chips with exactly the metrics of another chip. A table of the chip itself takes precedence.
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

#: Metrics that ncu counts in software or by patching code: every chip has them, and no list of a chip names them.
_SOFTWARE = ("launch__", "sass__", "device__", "profiler__", "sm__maximum_warps_per_active_cycle_pct")
#: The roll-ups of each kind of metric.
_ROLLUPS = {
    "Counter": ("sum", "avg", "min", "max"),
    "Throughput": ("avg", "min", "max", "sum"),
    "Ratio": ("ratio", "pct", "max_rate"),
}


@dataclass(frozen=True, slots=True)
class MetricTable:
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


def chips() -> list[str]:
    """The chips that have a table, or share another chip's."""
    files = {p.name.removesuffix(SUFFIX) for p in TABLES.glob(f"*{SUFFIX}")}
    return sorted(files | {chip for chip, other in SAME_LIST.items() if other in files})


def table(chip: str) -> MetricTable:
    """The table of a chip of :func:`chips`."""
    path = TABLES / f"{chip}{SUFFIX}"
    if not path.is_file():
        other = table(SAME_LIST[chip])
        return MetricTable(chip, other.metrics, f"{other.source} for {other.chip}, which has the same metrics")
    header, *rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    return MetricTable(chip, dict(row.split(" ") for row in rows), header.partition(", by ")[2])


def lacking(chip_table: MetricTable) -> dict[str, str]:
    """The facts of counters that this chip cannot measure, each with the reason."""
    specs = (s for s in FACTS.values() if s.tier == "counters" and s.group not in GROUP_STAGE)
    return {spec.name: why for spec in specs if (why := _lacks(chip_table, spec))}


def _lacks(chip_table: MetricTable, spec: FactSpec) -> str:
    if spec.ncu is None:  # computed from other facts
        return ""
    name = spec.ncu_name(chip_table.chip)
    if name is None:
        return f"{chip_table.chip} has no such counter"
    missing = (metric for metric in (name, spec.weight) if metric and not chip_table.has(metric))
    return next((f"{chip_table.chip} has no {metric}" for metric in missing), "")


def require_budgets(suite: Suite, chip_table: MetricTable, arch: str, gpu: str) -> None:
    """Refuses a suite with limits on facts that this GPU cannot measure: its gate could only exit 3.

    Raises:
        UsageError: the chip lacks facts; lists them.
    """
    reasons = lacking(chip_table)
    missing = dict.fromkeys(
        f"  {b.fact}: {reasons[b.fact]}"
        for b in suite.budgets
        if b.fact in reasons
        and b.severity == "limit"
        and (b.device is None or is_called(gpu, b.device))
        and matches_any(arch, b.archs)
    )
    if missing:
        raise UsageError("\n".join([f"chip {chip_table.chip}: expected metrics that it has, found", *missing]))
