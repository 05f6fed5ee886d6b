"""Stand-ins for GPUs and for their clock, which ``FLASHCORE_EXECUTOR`` and ``FLASHCORE_TIMER`` name.

``STANDIN_GPUS`` is their number (1 if not set). Work runs on the CPU: operators that the problem's file registers. Each
tells its duration to a clock that only it advances, so that times are the same on every machine.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flashcore.machine.gpu import Gpu
from flashcore.runner.guarded import Outputs
from flashcore.runner.process import LocalGpu
from flashcore.runner.queue import Pool
from flashcore.stages.bench.timing import Calls, Restored, Timed

sys.path[:0] = {str(Path(__file__).parents[3])} - {*sys.path}  # in a process of its own
from tests import host_timer  # noqa: E402

H200 = Gpu("NVIDIA H200", (9, 0), 132, 150_000_000_000, 60 << 20, 1980.0, "580.65")
#: Shared with the problem's file: µs since the process began.
CLOCK: Any = sys.modules.setdefault("standin_clock", types.SimpleNamespace(us=0.0))  # type: ignore[arg-type]
#: µs of an empty launch, and of a call of each mode over its own duration.
EMPTY = 0.8
MODES = {"back_to_back": 0.5, "isolated": 1.0, "cold": 1.2, "eager": 3.0}


class Executor:
    """H200s that run on the CPU."""

    device = "cpu"

    def __init__(self, address: str) -> None: ...

    def places(self, requested: str, say: Callable[[str], None]) -> tuple[dict[str, Gpu], Pool]:
        """The GPUs by UUID, and the pool of processes on them."""
        gpus = {f"GPU-{i}": H200 for i in range(int(os.environ.get("STANDIN_GPUS", "1")))}
        return gpus, Pool(tuple(map(LocalGpu, gpus)) if len(gpus) > 1 else ())


class HostTimer(host_timer.HostTimer):
    """Reads :data:`CLOCK`."""

    clock = "stand-in"

    @staticmethod
    def now() -> float:
        return float(CLOCK.us / 1e6)

    def timed(self) -> type[host_timer.HostTimed]:
        return _Timed

    def between(self, work: Callable[[], object], *, cover: int = 0) -> float:
        began = CLOCK.us
        work()
        return float(CLOCK.us - began)

    @functools.cached_property
    def empty(self) -> Timed:
        return self.prepare([lambda: None], 1)


class _Timed(host_timer.HostTimed):
    kernels: int | None = 1

    def __init__(
        self, calls: Calls, launches: int | None, restored: Restored | None, outputs: Sequence[Outputs]
    ) -> None:
        self._taken = 0
        super().__init__(calls, launches or 2, restored, outputs)

    def anew(self, take: Callable[[int], None], restage: Callable[[], None], count: int) -> list[float]:
        restage()
        times = []
        for i in range(count):
            take(i)
            times.append(HostTimer().between(self._calls[i]))
        return [min(times)]

    def _sample(self, mode: str, count: int = 1) -> float:
        if self.before is not None:
            self.before()
        began = CLOCK.us
        for i in range(count):
            if self._restored is not None:
                self._restored.restore(i)
            self._answer = self._calls[i % len(self._calls)]()
        self._taken += 1
        us = (CLOCK.us - began) / count * MODES[mode] or EMPTY
        return float(us * (1 + 0.002 * (self._taken * 7 % 5 - 2)))
