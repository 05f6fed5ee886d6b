"""A run's context, which all stages share: suite, selection, machine, settings, workers, log."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashcore.build import build
from flashcore.chips.metric_tables import lookup
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.catalogue import CHIPS
from flashcore.model.progress import ProgressLine, Say, silent
from flashcore.model.record import Built
from flashcore.model.settings import Limits, Settings
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.runner.executor import Executor
from flashcore.runner.problem_file import load_problem
from flashcore.runner.process import Command
from flashcore.runner.queue import Pool
from flashcore.suites.load import compared_with, load, select


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


def open_context(settings: Settings, executor: Executor, say: Say = silent) -> Context:
    """Loads the suite and inspects the machine; ``say`` also reports GPUs that ``all`` leaves out.

    Raises:
        UsageError, ManifestError: see :mod:`flashcore.suites.load`.
    """
    suite = load(settings.suite, Path(settings.build))
    options = build.Options.from_environment(suite, settings.archs)
    if options.archs:  # other archs are neither built nor gated
        suite = replace(suite, archs=tuple(a for a in suite.archs if a in options.archs))
    variants, shapes = select(suite, settings.variants, settings.shapes)
    gpus, workers = executor.places(settings.gpus, say)
    gpu = next(iter(gpus.values()), None) or Gpu.find()
    arch = gpu.arch_of(options.archs or suite.archs) if gpu else None
    if gpu and arch and settings.upto == "profile" and (chip := CHIPS.get(gpu.capability)) in lookup.chips():
        # A budget on a counter that the chip lacks is reported now, not after the run.
        lookup.require_budgets(suite, lookup.table(chip), arch, gpu.name)
    shapes = [_fitted(suite, s, gpu) for s in shapes]
    suite = replace(suite, shapes={**suite.shapes, **{s.name: s for s in shapes}})
    references: list[Variant] = []
    if settings.variants and settings.upto in ("bench", "profile"):
        references = compared_with(suite, variants)
        if not settings.shapes:  # omit shapes on which no selected variant runs
            shapes = [s for s in shapes if any(v.runs_on(s) for v in variants)]
    return Context(
        settings,
        suite,
        gpu,
        arch,
        options,
        (*variants, *references),
        tuple(shapes),
        frozenset(v.name for v in references),
        workers,
        device=getattr(executor, "device", "cuda"),
        say=say,
    )


def _fitted(suite: Suite, shape: Shape, gpu: Gpu | None) -> Shape:
    """The shape, scaled by its problem's ``fit`` for this machine, if it has one: the roofs suite loads all SMs equally
    and fits its working sets in L2."""
    if gpu is None or shape.params.get("SMS", 1) == 1:
        return shape
    problem = load_problem(suite.root, suite.problems[shape.problem].file)
    if not hasattr(problem, "fit"):
        return shape
    return replace(shape, params=problem.fit(dict(shape.params), gpu.sms, gpu.l2_bytes))
