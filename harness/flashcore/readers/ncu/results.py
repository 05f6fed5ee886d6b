"""ncu's results, from any reader: each profiled launch with ncu's metrics, unconverted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from flashcore.model.catalogue import STALL_REASONS
from flashcore.model.cause import Cause, Detail, Noted
from flashcore.model.causes import NO_NUMBER, Caches, NotReturned
from flashcore.model.record import CountedInstruction, Dim3

#: What was profiled as a unit: a kernel launch, a graph, or a range of several launches.
Workload = Literal["kernel", "graph", "range"]

#: Executions of each instruction, by address; collected with the counts per opcode.
EXECUTED = "inst_executed"
#: Warp samples at each instruction, by address, issuing or stalled.
SAMPLES = "smsp__pcsamp_sample_count"
_SAMPLED_AS = {"no_instruction": "no_instructions", "gmma": "warpgroup_arrive"}  # reasons with another sample name
#: Warp samples by stall reason.
STALLED = {f"stall_{r}": f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED_AS.get(r, r)}" for r in STALL_REASONS}
#: A listing's counter → ncu's metric with instances by address.
BY_ADDRESS = {
    "samples": SAMPLES,
    "executed": EXECUTED,
    "wavefronts": "memory_l1_wavefronts_shared",
    "wavefronts_ideal": "memory_l1_wavefronts_shared_ideal",
    **STALLED,
}
#: Larger than any counter, and small enough that sums and products stay finite.
LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one result.

    Args:
        instances: its nonzero parts by opcode or by instruction: by address, or in a report by offset in the function
            (``0x1f0``).
        cause: why it has no value, if the page says so.
    """

    value: float | int | str | None
    unit: str = ""
    instances: Mapping[str, float] = field(default_factory=dict)
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class MetricReading(Noted):
    """A metric as a number in ncu's unit. ``detail`` is the cause of a missing value, else a remark on the value.
    ``instances`` is ``None`` if ncu lists none, or they cannot be read."""

    value: float | None
    unit: str = ""
    instances: Mapping[str, float] | None = None
    detail: Detail | str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of an ncu rule about a result. ``speedup`` is its estimate in percent, of the whole kernel (``scope``
    is ``global``) or of the rule's part of it (``local``)."""

    rule: str
    message: str
    speedup: float | None = None
    scope: str = ""


@dataclass(frozen=True)
class Result:
    """One result, as ncu calls a profiled launch.

    Args:
        id: ncu's ID, its number in the report from 0.
        kernel: its full name, demangled unless ncu recorded mangled names.
        grid, block: all 0 for a graph or a range, which have no single size.
        ranges: its NVTX push/pop ranges, ``domain:name``, outermost first.
        process: the process's ID; empty if the report does not say.
        code: its key in :attr:`Report.code`; empty if the report lacks its code.
        averaged: the number of launches that its values are averages of; 0 for values of one launch.
        caches: set if ncu did not flush the caches before it, or if that is unknown.
    """

    id: int
    kernel: str
    workload: Workload
    grid: Dim3
    block: Dim3
    cc: tuple[int, int]
    metrics: Mapping[str, Metric]
    ranges: tuple[str, ...] = ()
    process: str = ""
    findings: tuple[Finding, ...] = ()
    code: str = ""
    mangled: str = ""
    caches: Caches | None = None
    averaged: int = 0

    def __contains__(self, metric: str) -> bool:
        return metric in self.metrics

    def read(self, metric: str) -> MetricReading:
        """The reading of a metric; without a value if ncu's is not a valid number of a counter."""
        if metric not in self.metrics:
            return MetricReading(None, detail=NotReturned())
        entry = self.metrics[metric]
        value, unit = entry.value, entry.unit
        if value is None:
            return MetricReading(None, unit, detail=entry.cause or NO_NUMBER("no value"))
        if isinstance(value, str):
            shown = value if len(value) <= 40 else value[:37] + "..."
            return MetricReading(None, unit, detail=NO_NUMBER(repr(shown), "which is not a number"))
        if not math.isfinite(value):
            return MetricReading(None, unit, detail=NO_NUMBER(str(value), "which is not finite"))
        if not 0 <= value <= LARGEST:
            return MetricReading(None, unit, detail=NO_NUMBER(f"{value:g}", "which is no valid count"))
        caches = self.caches if metric == "gpu__time_duration.sum" else None
        return MetricReading(plain(value), unit, entry.instances or None, caches or "")

    def number(self, metric: str) -> float | None:
        """The value of a metric; ``None`` if it has none."""
        return self.read(metric).value

    def text(self, metric: str) -> str:
        """The value of a metric as text; empty if it has none."""
        value = self.metrics[metric].value if metric in self.metrics else None
        return "" if value is None else str(value)

    def range_in(self, domain: str | None) -> str | None:
        """The innermost NVTX range of a domain; ``None`` if there is none."""
        names = [name for name in self.ranges if name.startswith(f"{domain}:")]
        return names[-1].removeprefix(f"{domain}:") if names else None

    @cached_property
    def cluster(self) -> int:
        """Blocks per cluster; 1 without clusters."""
        return max(1, int(self.number("launch__cluster_size") or 0))


@dataclass(frozen=True, slots=True)
class Container:
    """A report file's metadata. ``results`` is their number, ``None`` for an unknown form of file; ``command`` is ncu's
    command line. Empty if missing."""

    results: int | None
    ncu: str = ""
    cuda: str = ""
    command: str = ""
    cubins: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The content of one report. ``sources`` are texts by path; ``code`` is each function's instructions, without
    counters; ``reader`` is the program that read it, with its version; ``notes`` are remarks on it for people."""

    name: str
    results: tuple[Result, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, tuple[CountedInstruction, ...]] = field(default_factory=dict)
    reader: str = ""
    container: Container | None = None
    notes: tuple[str, ...] = ()


def plain(value: float | int) -> float | int:
    """The value as a float if that is exact; a count above 2^53 stays an integer."""
    return float(value) if isinstance(value, int) and float(value) == value else value
