"""What every stage needs, made once for a run: suite, selection, machine, settings, workers, log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from flashcore.chips.metric_tables import lookup
from flashcore.measure.build import build
from flashcore.measure.machine import gpu_choice, toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.settings import Settings
from flashcore.measure.workers.gpus import LocalGpu
from flashcore.measure.workers.pool import Pool
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.program import Command, Place
from flashcore.model.catalogue import CHIPS
from flashcore.model.progress import Step
from flashcore.model.record import Built
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.suites.load import load, select

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Drops a message."""


class Executor(Protocol):
    """Where GPU work runs."""

    def places(self, requested: str, say: Say) -> tuple[dict[str, Gpu], Pool]:
        """The requested GPUs by UUID, of one kind, and the pool of workers that runs on them."""
        ...


class ThisHost:
    """The GPUs of this host."""

    def places(self, requested: str, say: Say) -> tuple[dict[str, Gpu], Pool]:
        """See :class:`Executor`. The one GPU of a host is not named: CUDA gives it."""
        gpus = gpu_choice.chosen(requested, gpu_choice.visible(), say)
        named = len(gpus) > 1 or requested != gpu_choice.ALL
        places: tuple[Place, ...] = tuple(map(LocalGpu, gpus)) if named else ()
        return gpus, Pool(places, uuids=gpus)


@dataclass(frozen=True, slots=True)
class Context:
    """The settings resolved for this suite on this machine.

    Args:
        gpu: the GPU to measure on, if there is one; ``gpu_arch`` the suite's arch that runs on it.
        variants: the selected ones and their references.
        references: names of the variants that are timed for comparison, and not profiled.
        workers: the processes that run the suite's code, and the GPUs that they run on.
        folder: of the run's raw files; each stage has one of its name in it.
        built: the build's outcome as far as it is known.
        device: ``cpu`` runs stand-ins, for tests.
        slow: cases that bench found not to be among the first of their shape.
        resident: the program that serves check and bench in one process, which the pool keeps; ``None``: each its own.
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
    slow: frozenset[str] = frozenset()
    resident: Command | None = None
    say: Say = silent

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs to compile for."""
        return self.options.archs or self.suite.archs

    @property
    def build_folder(self) -> Path:
        """Compiled objects."""
        return Path(self.settings.build)

    def cases(self, stage: str) -> list[tuple[Variant, Shape]]:
        """The selected cases that use this stage, shape by shape. A shape that the user names uses every stage.

        Peers are profiled only on their first shape: they are there for comparison, and some launch many kernels.
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

    def progress(self, stage: str, total: int) -> Say:
        """Counts a stage's cases and estimates the remaining time from their rate, without the start-up."""
        done = 0
        first = 0.0

        def progress(text: str) -> None:
            nonlocal done, first
            done = min(done + 1, total)  # a case that is measured again is still one case
            now = time.monotonic()
            first = first or now
            left = (now - first) / (done - 1) * (total - done) if done > 1 else 0.0
            remaining = f" (about {left:.0f} s left)" if left >= 1 else ""
            self.say(Step(f"{stage} {done}/{total} {text}{remaining}", done, total))

        return progress


def open_context(settings: Settings, executor: Executor, say: Say = silent) -> Context:
    """Loads the suite and looks at the machine; ``say`` is also called with the GPUs that ``all`` leaves out.

    Raises:
        UsageError, ManifestError: see :mod:`flashcore.suites.load`.
    """
    suite = load(settings.suite, Path(settings.build))
    options = build.Options.from_environment(suite)
    if options.archs:  # what is not selected is neither built nor judged
        suite = replace(suite, archs=tuple(a for a in suite.archs if a in options.archs))
    variants, shapes = select(suite, settings.variant, settings.shapes)
    gpus, workers = executor.places(settings.gpus, say)
    gpu = next(iter(gpus.values()), None) or Gpu.find()
    arch = gpu.arch_of(options.archs or suite.archs) if gpu else None
    if gpu and arch and settings.upto == "profile" and (chip := CHIPS.get(gpu.capability)) in lookup.chips():
        # A limit on what the chip cannot count is a mistake to report now, not after the run.
        lookup.require_budgets(suite, lookup.table(chip), arch, gpu.name)
    shapes = [_fitted(suite, s, gpu) for s in shapes]
    suite = replace(suite, shapes={**suite.shapes, **{s.name: s for s in shapes}})
    references: list[Variant] = []
    if settings.variant is not None and settings.upto in ("bench", "profile"):
        references = _references(suite, variants)
        if not settings.shapes:  # where none of the selected runs, there is nothing to compare
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
        say=say,
    )


def _references(suite: Suite, selected: Sequence[Variant]) -> list[Variant]:
    """The baseline, the parents of the selected variants, and the peers, without those that are selected."""
    names = {suite.baseline, *(v.parent for v in selected)}
    return [v for v in suite.variants.values() if (v.is_reference or v.name in names) and v not in selected]


def _fitted(suite: Suite, shape: Shape, gpu: Gpu | None) -> Shape:
    """The shape as its problem cuts it for this machine, if the problem has a ``fit``: the roofs suite
    loads every SM alike and keeps its working sets within whatever L2 there is."""
    if gpu is None or shape.params.get("SMS", 1) == 1:
        return shape
    problem = load_problem(suite.root, suite.problems[shape.problem].file)
    if not hasattr(problem, "fit"):
        return shape
    return replace(shape, params=problem.fit(dict(shape.params), gpu.sms, gpu.l2_bytes))
