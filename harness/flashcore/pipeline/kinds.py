"""Splits a command into runs, one for each GPU model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashcore.measure.build import build
from flashcore.measure.context import Say
from flashcore.measure.machine import gpu_choice
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.settings import Settings
from flashcore.records import store
from flashcore.suites.load import load


def each_kind(settings: Settings, say: Say) -> list[Settings]:
    """The settings of a run for each GPU model. Models that support none of the suite's archs are reported and left
    out, unless there is no other. An executor's GPUs share one run.
    """
    kinds = _kinds(settings)
    if len(kinds) < 2:
        return [settings]
    suite = load(settings.suite, Path(settings.build))
    archs = build.Options.from_environment(suite).archs or suite.archs
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
