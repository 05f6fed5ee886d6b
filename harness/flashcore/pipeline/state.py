"""The job of a run: what the user chose, resolved for this suite on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu_choice import ALL
from flashcore.measure.settings import Bench, Check, Profile
from flashcore.model.suite import Shape, Suite, Variant

if TYPE_CHECKING:  # commands that build nothing have settings too
    from flashcore.measure.build import build
    from flashcore.measure.machine.gpu import Gpu
    from flashcore.measure.machine.ncu import ClockControl
    from flashcore.measure.workers.limits import Place


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. Paths are as given on the command line."""

    suite: str
    profiles: str = "profiles"
    records: tuple[str, ...] = ()  # runs recorded elsewhere that are joined too: folders, packed runs
    build: str = "build"
    variant: str | None = None
    shapes: tuple[str, ...] = ()
    upto: str | None = "profile"  # the last GPU stage; None: static only
    sanitize: bool = False  # besides, under compute-sanitizer
    join: bool = True
    clock_control: ClockControl = Profile.clock_control
    keep_report: bool = Profile.keep_report
    time_limit: float = Check.time_limit
    repeats: int = Check.repeats
    opcheck: bool = Check.opcheck  # have torch check each operator as well
    samples: int = Bench.samples
    seconds: float = Bench.seconds  # of sampling for each shape and mode
    modes: tuple[str, ...] = Bench.modes
    gpus: str = ALL  # or a number, or UUIDs with commas between
    recording: str = ""  # of one run of several that one command records; see Record.recording
    kinds: tuple[str, ...] = ()  # the ``gpus`` of each of these runs, in their order
    cluster: str | None = None  # the address of a Ray cluster: its GPUs, not this host's
    roofs: str | None = ""  # the suite that measures roofs, "": flashcore's own; None: draw without measured ones
    command: str = ""

    @property
    def places(self) -> tuple[Path, ...]:
        """Where recorded runs are looked up."""
        return (Path(self.profiles), *map(Path, self.records))


@dataclass(frozen=True, slots=True)
class Job:
    """The settings resolved: the suite, the chosen variants and shapes, and the GPU to measure them on, if any.

    ``companions`` are timed for comparison and not profiled. ``uuids`` are the GPUs of this host that are leased while
    it measures, ``places`` where its processes are started; none: wherever CUDA itself starts them.
    """

    settings: Settings
    suite: Suite
    gpu: Gpu | None
    gpu_arch: str | None
    options: build.Options
    variants: tuple[Variant, ...]
    shapes: tuple[Shape, ...]
    companions: frozenset[str] = frozenset()
    uuids: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def archs(self) -> tuple[str, ...]:
        """What is compiled for."""
        return self.options.archs or self.suite.archs

    def cases(self, stage: str) -> list[tuple[Variant, Shape]]:
        """The chosen cases that use this stage, shape by shape. A shape that the user names uses every stage.

        Peers are profiled only on their first shape: they are there for comparison, and some launch many kernels.
        """
        shapes = [s for s in self.shapes if stage in s.stages or s.name in self.settings.shapes]
        first = {v.name: next((s for s in shapes if v.runs_on(s)), None) for v in self.variants}
        return [
            (v, s)
            for s in shapes
            for v in self.variants
            if v.runs_on(s)
            and not (stage in ("profile", "sanitize") and v.name in self.companions)
            and not (v.is_reference and (stage == "sanitize" or (stage == "profile" and s is not first[v.name])))
        ]

    @property
    def cannot_measure(self) -> str:
        """Why this machine runs none of the GPU stages; empty if it can."""
        if self.gpu is None:
            return "no GPU on this machine"
        if self.gpu_arch is None:
            return f"{self.gpu.name} runs none of the suite's archs ({', '.join(self.suite.archs)})"
        if self.options.debug:
            return "a debug build (-G) is never timed"
        if toolchain.torch_root() is None:
            return "torch is not installed"
        return ""
