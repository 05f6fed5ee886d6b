"""The user's settings of a run, with all defaults.

The classes have no slots, so that a default can be read from its class: ``Bench.samples``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from flashcore.model.groups import with_tuples

#: Of ``--gpus``: every GPU of the first one's model.
ALL = "all"

ClockControl = Literal["none", "base"]
SanitizerTool = Literal["memcheck", "racecheck", "synccheck"]
#: Slowdown of a case under compute-sanitizer.
_SANITIZED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits in seconds, and the number of tasks per process.

    Args:
        time_limit: for a task, or for each step that it announces; then it counts as hung.
        startup_limit: from the start of a process to its first task, and between tasks.
        finish_limit: for a process to exit after its last task (a profiler writes its report).
        batch: most tasks per process.
    """

    time_limit: float = 60.0
    startup_limit: float = 120.0
    finish_limit: float = 20.0
    batch: int = 64


@dataclass(frozen=True, kw_only=True)
class Check:
    """How cases are checked; ``limits.time_limit`` applies to each seed and kind of a case.

    Args:
        kinds: the kinds of input to use; default: all that the problem defines.
        repeats: calls of each case that must agree bit for bit.
        opcheck: whether to run ``torch.library.opcheck`` on one operator per schema, on its first shape.
        children: concurrent processes for each GPU: a check is mostly host time, so half of the cores are used.
        limits: the batch is large, since a fault costs no more in a large batch: the journal keeps earlier answers.
    """

    kinds: Sequence[str] | None = None
    repeats: int = 20
    opcheck: bool = True
    children: int = max(1, min(5, (os.cpu_count() or 1) // 2))
    limits: Limits = field(default_factory=lambda: Limits(batch=1024))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How cases are timed; ``limits.time_limit`` applies to a case's setup and to a sample.

    Args:
        samples: minimum per case in the mode that ranks, and a third of it in the others; slow calls may get fewer, the
            more cases a shape has.
        max_samples: maximum per case and mode (at least ``samples``), and the single calls timed for percentiles; the
            default is what a 99th percentile needs.
        seconds: time per shape and mode, after which only ``samples`` are completed; more for shapes of many cases.
        noise: relative noise of the median at which sampling may end; doubled in modes that do not rank, and five times
            that for eager calls.
        first: cases that cannot be among this many fastest of their shape get few samples, except for what a budget or
            a prediction needs; 0: all cases, and selected variants, get all samples in
            all modes.
        modes: see :mod:`flashcore.stages.bench.timing`.
    """

    samples: int = 30
    first: int = 5
    max_samples: int = 1000
    seconds: float = 1.5
    noise: float = 0.002
    modes: Sequence[str] = ("isolated", "back_to_back", "cold", "eager")
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How cases are profiled; ``limits.time_limit`` applies to each step of a case, such as its profiled call.

    Args:
        clock_control: ``base`` locks the clocks while measuring, ``none`` does not.
        keep_report: keep ncu's reports next to the CSV.
        limits: the batch bounds the loss if ncu itself fails.
    """

    clock_control: ClockControl = "none"
    keep_report: bool = False
    limits: Limits = field(default_factory=lambda: Limits(startup_limit=180.0, finish_limit=60.0, batch=128))


@dataclass(frozen=True, kw_only=True)
class Sanitize:
    """How cases are sanitized; ``limits.time_limit`` applies to one case under one tool."""

    tools: Sequence[SanitizerTool] = ("memcheck", "racecheck", "synccheck")
    limits: Limits = field(
        default_factory=lambda: Limits(
            time_limit=_SANITIZED * Limits().time_limit, startup_limit=300.0, finish_limit=60.0, batch=32
        )
    )


_STAGES = {"check": Check, "bench": Bench, "profile": Profile, "sanitize": Sanitize}


@dataclass(frozen=True)
class Settings:
    """All settings of a run. Paths are as given on the command line.

    Args:
        records: more recorded runs to join: folders or packed runs.
        reuse: another build folder whose compiled files may be used.
        variants: globs of the variants to build and measure; empty for all.
        shapes: the names of the shapes; empty for all, in the stages that the manifest gives them.
        archs: the archs to build for; empty: those in ``CUDA_ARCH``, else all.
        upto: the last GPU stage; ``None``: static facts only.
        sanitize: also run compute-sanitizer.
        measurements: plugins' measurements to make after bench.
        gpus: ``all``, a number, or comma-separated UUIDs.
        executor: a plugin's executor and its address, ``cluster=auto``; empty: this host's GPUs.
        launcher: the reference of a plugin's function that calls cases from the plans of their kernels; empty: cases
            are called by their host code.
        isolate: whether check, bench and profile run each case in a separate process.
        roofs: the suite that measures roofs; empty: flashcore's; ``None``: do not use measured roofs.
    """

    suite: str
    profiles: str = "profiles"
    records: tuple[str, ...] = ()
    build: str = "build"
    reuse: str = ""
    variants: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    upto: str | None = "profile"
    join: bool = True
    check: Check = field(default_factory=Check)
    bench: Bench = field(default_factory=Bench)
    profile: Profile = field(default_factory=Profile)
    sanitize: Sanitize | None = None
    measurements: tuple[str, ...] = ()
    gpus: str = ALL
    executor: str = ""
    launcher: str = ""
    isolate: bool = False
    roofs: str | None = ""
    command: str = ""

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders and files that recorded runs are read from."""
        return (Path(self.profiles), *map(Path, self.records))

    @property
    def chooses_gpus(self) -> bool:
        """Whether the user selects GPUs."""
        return bool(self.executor) or self.gpus != ALL

    def with_time_limit(self, seconds: float) -> Settings:
        """With this time limit per case; five times as long under compute-sanitizer."""

        def limited(limits: Limits, factor: int = 1) -> Limits:
            return replace(limits, time_limit=factor * seconds)

        return replace(
            self,
            check=replace(self.check, limits=limited(self.check.limits)),
            profile=replace(self.profile, limits=limited(self.profile.limits)),
            sanitize=self.sanitize and replace(self.sanitize, limits=limited(self.sanitize.limits, _SANITIZED)),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of :func:`dataclasses.asdict`, through JSON.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: ``data`` has another form.
        """
        stages = {
            name: data[name] and kind(**{**with_tuples(data[name]), "limits": Limits(**data[name]["limits"])})
            for name, kind in _STAGES.items()
            if name in data
        }
        return cls(**{**with_tuples(data), **stages})
