"""The user's choice of what is measured and how; the defaults are here and nowhere else.

Without slots, so that a default can be read off its class: ``Bench.samples``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from flashcore.measure.machine.gpu_choice import ALL
from flashcore.measure.machine.ncu import CacheControl, ClockControl
from flashcore.measure.workers.program import Limits

Tool = Literal["memcheck", "racecheck", "synccheck"]
#: By how much compute-sanitizer's tools make a case slower.
_SANITIZED = 5


@dataclass(frozen=True, kw_only=True)
class Check:
    """How cases are checked; ``limits.time_limit`` is for each seed and kind of a case.

    Args:
        kinds: the kinds of input to use; all that the problem knows unless given.
        repeats: calls of each case that must agree bit by bit.
        opcheck: whether operators go through ``torch.library.opcheck``, one of each schema, on its first shape.
        lanes: processes side by side: most of a check is the host's time, so half of its cores are used.
        limits: the batch is large, since the journal keeps what was answered: a fault costs no more in a long batch.
    """

    kinds: Sequence[str] | None = None
    repeats: int = 20
    opcheck: bool = True
    lanes: int = max(1, min(5, (os.cpu_count() or 1) // 2))
    limits: Limits = field(default_factory=lambda: Limits(batch=1024))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How cases are timed; ``limits.time_limit`` is for setting up a case, or for a sample.

    Args:
        samples: of each case and mode, at least; calls of many ms may get fewer, and say so. The more cases a shape
            has, the less time slow calls get.
        max_samples: at most so many (at least ``samples``), and so many calls for the percentiles of a regime; as many
            as a 99th percentile needs.
        seconds: for each shape and mode, after which no more than ``samples`` are taken; of many cases more.
        noise: relative noise of the median at which sampling may end; twice that in regimes that do not rank, and five
            times eagerly.
        first: cases that cannot be among so many of their shape get few samples, except for what a budget or a
            prediction needs; 0: all get all. Selected variants do.
        modes: see :mod:`flashcore.measure.bench.timing`.
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
    """How cases are profiled; ``limits.time_limit`` is for one case, all passes together.

    Args:
        clock_control: ``base`` locks the clocks while measuring, ``none`` leaves them alone.
        cache_control: ``all`` flushes the caches before each pass (cold), ``none`` leaves them warm.
        keep_report: keep ncu's own reports beside the CSV.
        limits: the batch bounds what a fault of ncu itself can cost.
    """

    clock_control: ClockControl = "none"
    cache_control: CacheControl = "all"
    keep_report: bool = False
    limits: Limits = field(default_factory=lambda: Limits(startup_limit=180.0, finish_limit=60.0, batch=128))


@dataclass(frozen=True, kw_only=True)
class Sanitize:
    """How cases are sanitized; ``limits.time_limit`` is for one case under one tool.

    Args:
        limits: the batch is of cases that are clean.
    """

    tools: Sequence[Tool] = ("memcheck", "racecheck", "synccheck")
    limits: Limits = field(
        default_factory=lambda: Limits(
            time_limit=_SANITIZED * Limits().time_limit, startup_limit=300.0, finish_limit=60.0, batch=32
        )
    )


_STAGES = {"check": Check, "bench": Bench, "profile": Profile, "sanitize": Sanitize}


@dataclass(frozen=True)
class Settings:
    """The user's choice for a run. Paths are as given on the command line.

    Args:
        records: runs recorded elsewhere that are joined too: folders, packed runs.
        reuse: another build folder, whose compiled files are used too.
        upto: the last GPU stage; ``None``: static facts only.
        sanitize: besides, under compute-sanitizer.
        gpus: ``all``, a number, or UUIDs with commas between.
        executor: a plugin's executor with its address, ``cluster=auto``; empty: this host's GPUs.
        recording: of one run of several that one command records; see ``Record.recording``.
        kinds: the ``gpus`` of each of these runs, in their order.
        roofs: the suite that measures roofs, "": flashcore's own; ``None``: draw without measured ones.
    """

    suite: str
    profiles: str = "profiles"
    records: tuple[str, ...] = ()
    build: str = "build"
    reuse: str = ""
    variant: str | None = None
    shapes: tuple[str, ...] = ()
    upto: str | None = "profile"
    join: bool = True
    check: Check = field(default_factory=Check)
    bench: Bench = field(default_factory=Bench)
    profile: Profile = field(default_factory=Profile)
    sanitize: Sanitize | None = None
    gpus: str = ALL
    executor: str = ""
    recording: str = ""
    kinds: tuple[str, ...] = ()
    roofs: str | None = ""
    command: str = ""

    @property
    def places(self) -> tuple[Path, ...]:
        """Where recorded runs are looked up."""
        return (Path(self.profiles), *map(Path, self.records))

    @property
    def chooses_gpus(self) -> bool:
        """Whether the user names the GPUs."""
        return bool(self.executor) or self.gpus != ALL

    def with_time_limit(self, seconds: float) -> Settings:
        """With so many seconds for a case; under compute-sanitizer five times as many."""

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
            ValueError, LookupError, TypeError, AttributeError: it has another form.
        """
        stages = {
            name: data[name] and kind(**{**_tuples(data[name]), "limits": Limits(**data[name]["limits"])})
            for name, kind in _STAGES.items()
            if name in data
        }
        return cls(**{**_tuples(data), **stages})


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
