"""ncu's results, independent of how they were read: each profiled launch with ncu's metrics as ncu gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from flashcore.model.catalogue import STALL_REASONS
from flashcore.model.cause_text import text
from flashcore.model.causes import Caches, Cause, Detail, NoNumber, NotReturned
from flashcore.model.record import Instruction

Dim3 = tuple[int, int, int]
#: What was profiled as one: a kernel launch, a graph, or a range of several launches.
Workload = Literal["kernel", "graph", "range"]

#: How often each instruction was executed, by address: it comes along with the counts per opcode.
EXECUTED = "inst_executed"
#: How often a warp was found at an instruction, by address, whether it issued or was stalled.
SAMPLES = "smsp__pcsamp_sample_count"
_SAMPLED_AS = {"no_instruction": "no_instructions", "gmma": "warpgroup_arrive"}  # where the sample's name differs
#: The same by stall reason.
STALLED = {f"stall_{r}": f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED_AS.get(r, r)}" for r in STALL_REASONS}
#: A listing's count per instruction → ncu's metric with its instances by address.
BY_ADDRESS = {
    "samples": SAMPLES,
    "executed": EXECUTED,
    "wavefronts": "memory_l1_wavefronts_shared",
    "wavefronts_ideal": "memory_l1_wavefronts_shared_ideal",
    **STALLED,
}
#: No counter of a GPU is larger, and sums and products of such numbers stay finite.
LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one result.

    Args:
        instances: its parts by opcode, or by instruction: an address, or in a report its offset in the function
            (``0x1f0``), without those that are 0.
        cause: why it has no value, if the page gives one.
    """

    value: float | int | str | None
    unit: str = ""
    instances: Mapping[str, float] = field(default_factory=dict)
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric as a number in ncu's own unit. Where ``value`` is ``None``, ``detail`` is the cause; else how it was
    made, if it was not simply read. ``instances`` is ``None`` if ncu listed none or they cannot be read."""

    value: float | None
    unit: str = ""
    instances: Mapping[str, float] | None = None
    detail: Detail | str = ""

    @property
    def note(self) -> str:
        """The detail in words, for people."""
        return text(self.detail)


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
        kernel: its full name, demangled unless ncu was asked for the mangled one.
        grid, block: all 0 for a graph or a range, which have no single size.
        ranges: the NVTX push/pop ranges it ran in, ``domain:name``, the outermost first.
        process: the process's ID; empty if the report does not say.
        code: names its entry in :attr:`Report.code`; empty where the report has no code of it.
        averaged: the number of launches that its values are averages of; 0 for one launch's own values.
        caches: where ncu did not flush the caches before, or where that is not known.
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

    def read(self, metric: str) -> Reading:
        """The reading of a metric, without a value where there is no number that a counter can have."""
        if metric not in self.metrics:
            return Reading(None, detail=NotReturned())
        given = self.metrics[metric]
        value, unit = given.value, given.unit
        if value is None:
            return Reading(None, unit, detail=given.cause or NoNumber("no value"))
        if isinstance(value, str):
            shown = value if len(value) <= 40 else value[:37] + "..."
            return Reading(None, unit, detail=NoNumber(repr(shown), "which is not a number"))
        if not math.isfinite(value):
            return Reading(None, unit, detail=NoNumber(str(value), "which is not finite"))
        if not 0 <= value <= LARGEST:
            return Reading(None, unit, detail=NoNumber(f"{value:g}", "which no counter can be"))
        caches = self.caches if metric == "gpu__time_duration.sum" else None
        return Reading(plain(value), unit, given.instances or None, caches or "")

    def number(self, metric: str) -> float | None:
        """Its value, ``None`` where it has none."""
        return self.read(metric).value

    def text(self, metric: str) -> str:
        """Its value as text; empty where it has none."""
        value = self.metrics[metric].value if metric in self.metrics else None
        return "" if value is None else str(value)

    def range_in(self, domain: str | None) -> str | None:
        """The innermost NVTX range of a domain, ``None`` if there is none."""
        names = [name for name in self.ranges if name.startswith(f"{domain}:")]
        return names[-1].removeprefix(f"{domain}:") if names else None

    @cached_property
    def cluster(self) -> int:
        """Blocks per cluster; 1 where there are none."""
        return max(1, int(self.number("launch__cluster_size") or 0))


@dataclass(frozen=True, slots=True)
class Container:
    """What a report's file says about itself. ``results`` is ``None`` for an unknown form of file; ``command`` is ncu's
    command line. Empty: not found."""

    results: int | None
    ncu: str = ""
    cuda: str = ""
    command: str = ""
    cubins: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The content of one file. ``sources`` are texts by path; ``code`` is each function's instructions, without counts;
    ``reader`` the program that read it, with its version."""

    name: str
    results: tuple[Result, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, tuple[Instruction, ...]] = field(default_factory=dict)
    reader: str = ""
    container: Container | None = None


def plain(value: float | int) -> float | int:
    """A float where that is the same number: a count above 2^53 stays an integer."""
    return float(value) if isinstance(value, int) and float(value) == value else value
