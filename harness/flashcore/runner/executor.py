"""Where GPU work runs: on this host, or where a plugin's executor says."""

from __future__ import annotations

from typing import Protocol

from flashcore.machine import gpu_choice
from flashcore.machine.gpu import Gpu
from flashcore.model.progress import Say
from flashcore.model.settings import ALL
from flashcore.runner.process import LocalGpu, Place
from flashcore.runner.queue import Pool


class Executor(Protocol):
    """Where GPU work runs: in CUDA, unless it has another ``device``."""

    def places(self, requested: str, say: Say) -> tuple[dict[str, Gpu], Pool]:
        """The requested GPUs by UUID, all of one model, and the pool of workers on them."""
        ...


class ThisHost:
    """The GPUs of this host."""

    def places(self, requested: str, say: Say) -> tuple[dict[str, Gpu], Pool]:
        """See :class:`Executor`. A single default GPU needs no place: CUDA selects it."""
        gpus = gpu_choice.chosen(requested, gpu_choice.visible(), say)
        named = len(gpus) > 1 or requested != ALL
        places: tuple[Place, ...] = tuple(map(LocalGpu, gpus)) if named else ()
        return gpus, Pool(places, uuids=gpus)
