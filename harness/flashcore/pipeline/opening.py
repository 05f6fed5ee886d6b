"""Opens a run's context: loads the plugins and the suite, and inspects the machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from flashcore.build import build
from flashcore.chips.metric_tables import lookup
from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import gpu_choice
from flashcore.machine.gpu import Gpu
from flashcore.model.catalogue import CHIPS
from flashcore.model.progress import Say, silent
from flashcore.model.settings import Settings
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.pipeline import plugins
from flashcore.runner.executor import Executor, ThisHost
from flashcore.runner.problem_file import load_file, load_problem
from flashcore.stages.context import Context
from flashcore.suites.load import compared_with, load, select

#: Environment variable: a file whose ``Executor`` replaces this host's GPUs in tests.
STAND_IN = "FLASHCORE_EXECUTOR"


def each_gpu(settings: Settings) -> list[Settings]:
    """The settings for each requested GPU; an executor's GPUs are not split."""
    uuids = [] if settings.executor else [*gpu_choice.chosen(settings.gpus, gpu_choice.visible())]
    return [replace(settings, gpus=uuid) for uuid in uuids] if len(uuids) > 1 else [settings]


def open_context(settings: Settings, say: Say = silent, executor: Executor | None = None) -> Context:
    """The settings, resolved for their suite on this machine; ``say`` also reports GPUs that ``all`` leaves out.

    Args:
        executor: where GPU work runs, if not where the settings say.

    Raises:
        UsageError, ManifestError: see :mod:`flashcore.suites.load`.
    """
    plugins.load()
    suite = load(settings.suite, Path(settings.build))
    options = build.Options.from_environment(suite, settings.archs)
    if options.archs:  # other archs are neither built nor gated
        suite = replace(suite, archs=tuple(a for a in suite.archs if a in options.archs))
    variants, shapes = select(suite, settings.variants, settings.shapes)
    executor = executor or executor_of(settings)
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


def executor_of(settings: Settings) -> Executor:
    """The executor of a run's GPU work: this host, a plugin's, or a test's stand-in."""
    name, _, address = settings.executor.partition("=")
    if not name and STAND_IN not in os.environ:
        return ThisHost()
    made = plugins.find("executors", name) if name else load_file(os.environ[STAND_IN]).Executor
    executor: Executor = made(address)
    return executor


def open_recordable(settings: Settings, say: Say = silent, *, needs_gpu: bool = False) -> Context:
    """The context of a run that may be recorded.

    Args:
        needs_gpu: whether the run requires a GPU.

    Raises:
        CapabilityError: a GPU is required, and this machine cannot measure.
        UsageError: this is a debug build.
    """
    opened = open_context(settings, say)
    if needs_gpu and (reason := opened.cannot_measure):
        hint = "run it on a machine with a GPU; `flashcore gate` and `flashcore report` work without one"
        raise CapabilityError(reason, hint)
    if opened.options.debug:
        raise UsageError(
            "DEBUG=1: expected a build that may be timed and gated, found a debug build (-G)\n"
            "  hint: unset DEBUG; only `flashcore build` supports it"
        )
    return opened
