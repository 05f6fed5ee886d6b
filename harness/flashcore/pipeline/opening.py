"""Opens a run's context, with the plugins that it needs."""

from __future__ import annotations

import os
from dataclasses import replace

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import gpu_choice
from flashcore.model.progress import Say, silent
from flashcore.model.settings import Settings
from flashcore.pipeline import plugins
from flashcore.runner.executor import Executor, ThisHost
from flashcore.runner.problem_file import load_file
from flashcore.stages import context
from flashcore.stages.context import Context

#: Environment variable: a file whose ``Executor`` replaces this host's GPUs in tests.
STAND_IN = "FLASHCORE_EXECUTOR"


def each_gpu(settings: Settings) -> list[Settings]:
    """The settings for each requested GPU; an executor's GPUs are not split."""
    uuids = [] if settings.executor else [*gpu_choice.chosen(settings.gpus, gpu_choice.visible())]
    return [replace(settings, gpus=uuid) for uuid in uuids] if len(uuids) > 1 else [settings]


def open_context(settings: Settings, say: Say = silent) -> Context:
    """Loads the plugins and the suite, and inspects the machine; see
    :func:`flashcore.stages.context.open_context`."""
    plugins.load()
    executor = executor_of(settings)
    return context.open_context(settings, executor, say)


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
