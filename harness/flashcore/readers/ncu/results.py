"""What a report of Nsight Compute holds, independent of how it was read: its results, each with ncu's metrics as ncu
gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from flashcore.model.record import Instruction
from flashcore.plugins.imports import equivalents
from flashcore.readers.ncu.container import Container
from flashcore.readers.ncu.raw_page import Dim3, Reading

#: What was profiled as one: a kernel launch, a graph, or a range of several launches.
Workload = Literal["kernel", "graph", "range"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one result. ``instances`` are its parts by what they are of: an opcode, or an instruction's offset
    in the function (``0x1f0``); of the latter those that are not 0."""

    value: float | int | str | None
    unit: str = ""
    instances: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one of NVIDIA's rules about a result. ``speedup`` is its estimate in per cent, of the whole kernel
    (``global``) or of the part that the rule is about (``local``)."""

    rule: str
    message: str
    speedup: float | None = None
    scope: str = ""


@dataclass(frozen=True)
class Result:
    """One result, as ncu calls a profiled launch.

    Args:
        id: its number in the report, from 0: ncu's own ID.
        kernel: its full name, demangled.
        grid, block: all 0 of a graph or a range, which have no one size.
        ranges: the NVTX ranges it ran in, ``domain:name``, the outermost first.
        code: names its entry in :attr:`Report.code`; empty where the report has no code of it.
        averaged: of how many launches its values are averages; 0 of one launch's own.
        caches: a note on its duration where ncu did not flush the caches before, or where that is not known.
    """

    id: int
    kernel: str
    workload: Workload
    grid: Dim3
    block: Dim3
    cc: tuple[int, int]
    metrics: Mapping[str, Metric]
    findings: tuple[Finding, ...] = ()
    ranges: tuple[str, ...] = ()
    code: str = ""
    mangled: str = ""
    caches: str = ""
    averaged: int = 0

    def __contains__(self, metric: str) -> bool:
        return metric in self.metrics

    def read(self, metric: str) -> Reading:
        """The reading of a metric in ncu's own unit, without a value where there is none that is a number."""
        found = self.metrics.get(metric)
        if found is None:
            made = equivalents.reading(metric, lambda other: self.number(other) if other in self else None)
            return made or Reading(None, note="the report does not have it")
        value = found.value
        if isinstance(value, (str, type(None))):
            return Reading(None, found.unit, note=f"ncu gave {value!r}, which is not a number" if value else "no value")
        if not math.isfinite(value) or value < 0:
            return Reading(None, found.unit, note=f"ncu gave {value}, which no counter can be")
        note = self.caches if metric == "gpu__time_duration.sum" else ""
        return Reading(plain(value), found.unit, found.instances or None, note)

    def number(self, metric: str) -> float | None:
        """Its value, ``None`` where it has none."""
        return self.read(metric).value

    def text(self, metric: str) -> str:
        """Its value as text; empty where it has none."""
        found = self.metrics.get(metric)
        return str(found.value) if found is not None and found.value is not None else ""

    @cached_property
    def cluster(self) -> int:
        """Blocks a cluster; 1 where there are none."""
        return max(1, int(self.number("launch__cluster_size") or 0))


@dataclass(frozen=True, slots=True)
class Report:
    """All of one file. ``sources`` are texts by path; ``code`` the instructions of each function, without counts."""

    name: str
    results: tuple[Result, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, tuple[Instruction, ...]] = field(default_factory=dict)
    reader: str = ""  # what read it, with its version
    container: Container | None = None  # what the file says about itself, if it is a report


def plain(value: float | int) -> float | int:
    """A float where that is the same number: a count above 2^53 stays an integer."""
    return float(value) if isinstance(value, int) and float(value) == value else value
