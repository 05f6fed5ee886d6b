"""Splits a command into runs, one for each GPU model, and opens a run's context, with the plugins that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure import context
from flashcore.measure.build import build
from flashcore.measure.context import Context, Executor, Say, ThisHost, silent
from flashcore.measure.machine import gpu_choice
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.settings import Settings
from flashcore.pipeline import plugins
from flashcore.records import store
from flashcore.suites.load import load


def each_kind(settings: Settings, say: Say) -> list[Settings]:
    """The settings of a run for each GPU model. Models that support none of the suite's archs are reported and left
    out, unless there is no other. An executor's GPUs share one run."""
    kinds = _kinds(settings)
    if len(kinds) < 2:
        return [settings]
    suite = load(settings.suite, Path(settings.build))
    archs = build.Options.from_environment(suite, settings.archs).archs or suite.archs
    able = [kind for kind in kinds if next(iter(kind.values())).arch_of(archs)]
    for kind in kinds if able else ():
        decision = "a separate run" if kind in able else f"left out: supports none of {', '.join(archs)}"
        say(f"{gpu_choice.listed(kind)}: {decision}")
    gpus = tuple(",".join(kind) for kind in able or kinds[:1])
    if len(gpus) == 1:
        return [replace(settings, gpus=gpus[0])]
    recording = store.new_id()
    return [replace(settings, gpus=one, recording=recording, kinds=gpus) for one in gpus]


def each_gpu(settings: Settings) -> list[Settings]:
    """The settings for each requested GPU; an executor's GPUs are not split."""
    uuids = [uuid for kind in _kinds(settings) for uuid in kind]
    return [replace(settings, gpus=uuid) for uuid in uuids] if len(uuids) > 1 else [settings]


def _kinds(settings: Settings) -> list[dict[str, Gpu]]:
    return [] if settings.executor else gpu_choice.by_kind(settings.gpus, gpu_choice.visible())


def open_context(settings: Settings, say: Say = silent) -> Context:
    """Loads the plugins and the suite, and inspects the machine; see
    :func:`flashcore.measure.context.open_context`."""
    plugins.load()
    executor = executor_of(settings)
    return context.open_context(settings, executor, say)


def executor_of(settings: Settings) -> Executor:
    """The executor of a run's GPU work: this host, or a plugin's."""
    if not settings.executor:
        return ThisHost()
    name, _, address = settings.executor.partition("=")
    executor: Executor = plugins.find("executors", name)(address)
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
