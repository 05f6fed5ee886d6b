"""What a caller may choose of each stage that runs kernels, and every default of it.

Without slots, so that a default can be read off its class: ``Bench.samples``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.measure.workers.limits import Limits

if TYPE_CHECKING:
    from flashcore.measure.machine.compute_sanitizer import Tool
    from flashcore.measure.machine.ncu import CacheControl, ClockControl
    from flashcore.model.record import Plan
    from flashcore.readers import phases


def _nobody(line: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Stage(Limits):
    """Of every stage.

    Args:
        device: ``cpu`` runs stand-ins, for tests.
        progress: called with a line for each case.
    """

    device: str = "cuda"
    progress: Callable[[str], None] = _nobody


@dataclass(frozen=True, kw_only=True)
class Check(Stage):
    """``time_limit`` is for each seed and kind of a case.

    Args:
        kinds: the kinds of input to use; all that the problem knows unless given.
        repeats: calls of each case that must agree bit by bit.
        opcheck: whether operators go through ``torch.library.opcheck``, one of each schema, on its first shape.
        opchecked: a folder that remembers which operators were found right; those are not asked again.
        batch: the journal keeps what was answered, so a fault costs no more in a long batch than in a short one; a
            fresh process costs seconds.
        lanes: most of a check is the host's time, so half of its cores are used.
        apart: each process that has cases of a shape computes its references anew, in less time than one case takes.
    """

    kinds: Sequence[str] | None = None
    repeats: int = 20
    opcheck: bool = True
    opchecked: Path | None = None
    batch: int = 1024
    refill: bool = True
    lanes: int = max(1, min(5, (os.cpu_count() or 1) // 2))
    apart: int = 16


@dataclass(frozen=True, kw_only=True)
class Bench(Stage):
    """``time_limit`` is for setting up a case, or for a sample.

    Args:
        baseline: the variant that the others are compared with.
        samples: of each case and mode, at least; calls of many ms may get fewer, and say so. The more cases a shape
            has, the less time slow calls get.
        max_samples: at most so many (at least ``samples``), and so many calls for the percentiles of a regime; as many
            as a 99th percentile needs.
        seconds: for each shape and mode, after which no more than ``samples`` are taken; of many cases more.
        noise: relative noise of the median at which sampling may end; twice that in regimes that do not rank, and five
            times eagerly.
        companions: variants of which fewer single calls are timed: as many as a 90th percentile needs.
        modes: see :mod:`flashcore.measure.bench.timing`.
    """

    baseline: str
    refill: bool = True
    samples: int = 30
    max_samples: int = 1000
    seconds: float = 1.5
    noise: float = 0.002
    companions: frozenset[str] = frozenset()
    modes: tuple[str, ...] = ("isolated", "back_to_back", "cold", "eager")


@dataclass(frozen=True, kw_only=True)
class Profile(Stage):
    """``time_limit`` is for one case, all passes together.

    Args:
        ncu: Nsight Compute, see :func:`flashcore.measure.machine.ncu.find_ncu`.
        chip: the GPU's chip as ncu names it (``gh100``): decides the names of the metrics.
        plans: case (``variant/shape``) → what it launches; peers have none.
        codes: variant → the phases of its code, where its sources mark some.
        registers: variant → kernel → registers a thread, as its cubin has them: ncu's values are checked against them.
        clock_control: ``base`` locks the clocks while measuring, ``none`` leaves them alone.
        cache_control: ``all`` flushes the caches before each pass (cold), ``none`` leaves them warm.
        keep_report: keep ncu's own reports beside the CSV.
        batch: bounds what a fault of ncu itself can cost.
    """

    ncu: Path | str
    chip: str
    plans: Mapping[str, Plan] = field(default_factory=dict)
    codes: Mapping[str, phases.Code] = field(default_factory=dict)
    registers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clock_control: ClockControl = "none"
    cache_control: CacheControl = "all"
    keep_report: bool = False
    startup_limit: float = 180.0
    finish_limit: float = 60.0
    batch: int = 128
    apart: int = 1


@dataclass(frozen=True, kw_only=True)
class Sanitize(Stage):
    """``time_limit`` is for one case under one tool, which makes it many times slower.

    Args:
        sanitizer: see :func:`flashcore.measure.machine.compute_sanitizer.find_sanitizer`.
        batch: cases a process, as long as they are clean.
    """

    sanitizer: Path | str
    tools: Sequence[Tool] = ("memcheck", "racecheck", "synccheck")
    time_limit: float = 5 * Limits.time_limit
    startup_limit: float = 300.0
    finish_limit: float = 60.0
    batch: int = 32
    apart: int = 1
