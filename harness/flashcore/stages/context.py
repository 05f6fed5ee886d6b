"""A run's context, which all stages share: suite, selection, machine, settings, workers, log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashcore.build import build
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.progress import ProgressLine, Say, silent
from flashcore.model.record import Built, Plan, plans_for
from flashcore.model.settings import Limits, Settings
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.runner.process import Command
from flashcore.runner.queue import Pool


@dataclass(frozen=True, slots=True)
class Context:
    """The settings, resolved for this suite on this machine.

    Args:
        gpu: the GPU to measure on, or ``None``; ``gpu_arch``: the suite's arch that runs on it.
        variants: the selected variants and their references.
        references: names of the variants that are timed for comparison and not profiled.
        workers: the pool of processes that run the suite's code.
        folder: the folder of the run's raw files, with a subfolder per stage.
        built: the build's outcome so far.
        device: ``cpu`` runs stand-ins, for tests: operators that the problem's file registers.
        resident: a program that serves both check and bench and stays in the pool; ``None``: a separate one for each.
    """

    settings: Settings
    suite: Suite
    gpu: Gpu | None
    gpu_arch: str | None
    options: build.Options
    variants: tuple[Variant, ...]
    shapes: tuple[Shape, ...]
    references: frozenset[str] = frozenset()
    workers: Pool = field(default_factory=Pool)
    folder: Path = Path()
    built: Built = Built("", (), ())  # noqa: RUF009  frozen
    device: str = "cuda"
    resident: Command | None = None
    say: Say = silent

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs to compile for."""
        return self.options.archs or self.suite.archs

    @property
    def build_folder(self) -> Path:
        """The folder of compiled objects."""
        return Path(self.settings.build)

    @property
    def plans(self) -> Mapping[Case, Plan]:
        """The launch plans of the cases on the GPU."""
        return plans_for(self.built.plans, self.gpu_arch)

    def limits(self, limits: Limits) -> Limits:
        """A stage's limits, with one case per process if the user wants that."""
        return replace(limits, batch=1) if self.settings.isolate else limits

    def cases(self, stage: str) -> list[tuple[Variant, Shape]]:
        """The selected cases that use this stage, shape by shape. A shape that the user selects uses every stage.

        Libraries are profiled only on their first shape: they serve for comparison, and some launch many kernels.
        """
        shapes = [s for s in self.shapes if stage in s.stages or s.name in self.settings.shapes]
        first = {v.name: next((s for s in shapes if v.runs_on(s)), None) for v in self.variants}
        return [
            (v, s)
            for s in shapes
            for v in self.variants
            if v.runs_on(s)
            and not (stage in ("profile", "sanitize") and v.name in self.references)
            and not (v.is_reference and (stage == "sanitize" or (stage == "profile" and s is not first[v.name])))
        ]

    @property
    def cannot_measure(self) -> str:
        """Why this machine cannot run the GPU stages; empty if it can."""
        if self.gpu is None:
            return "no GPU on this machine"
        if self.gpu_arch is None:
            return f"{self.gpu.name} runs none of the suite's archs ({', '.join(self.suite.archs)})"
        if self.options.debug:
            return "a debug build (-G) is never timed"
        if toolchain.torch_root() is None:
            return "torch is not installed"
        return ""

    def progress(self, stage: str, total: int) -> Say:
        """Counts a stage's cases and estimates the remaining time from their rate, excluding startup."""
        done = 0
        first = 0.0

        def progress(text: str) -> None:
            nonlocal done, first
            done = min(done + 1, total)  # a case that is measured again is still one case
            now = time.monotonic()
            first = first or now
            left = (now - first) / (done - 1) * (total - done) if done > 1 else 0.0
            remaining = f" (about {left:.0f} s left)" if left >= 1 else ""
            self.say(ProgressLine(f"{stage} {done}/{total} {text}{remaining}", done, total))

        return progress
