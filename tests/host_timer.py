"""Processor time on the CPU, in place of CUDA events: what else the machine does has no part in it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from flashcore.runner.guarded import Outputs
from flashcore.stages.bench.timing import Calls, Restored, Timed, Timer, calls_for


class HostTimer(Timer):
    """The thread's processor time around calls that are done when they return."""

    clock = "host clock"
    now = staticmethod(time.thread_time)
    doubt = 2000.0

    def __init__(self) -> None: ...

    def timed(self) -> type[HostTimed]:
        return HostTimed

    def sets(self, size: int) -> int:
        return 2

    def copies(self, size: int, resident: int) -> int:
        return 2

    def prepare(
        self,
        calls: Calls,
        launches: int | None = None,
        restored: Restored | None = None,
        outputs: Sequence[Outputs] = (),
        *,
        graphs: bool = True,
    ) -> Timed:
        return self.timed()(calls, launches, restored, outputs)

    def nodes(self, call: Callable[[], object]) -> tuple[int, int] | str:
        return 1, 0

    def between(self, work: Callable[[], object], *, cover: int = 0) -> float:
        began = time.thread_time()
        work()
        return (time.thread_time() - began) * 1e6

    @functools.cached_property
    def empty(self) -> Timed:
        return self.prepare([lambda: None])


class HostTimed(Timed):
    kernels: int | None = None
    copies: int = 0
    before: Callable[[], None] | None = None

    def __init__(
        self, calls: Calls, launches: int | None, restored: Restored | None, outputs: Sequence[Outputs]
    ) -> None:
        self._calls, self._restored, self.outputs = calls, restored, outputs
        self._answer: Any = None
        self._flush = bytearray(1 << 20)
        self._sample("isolated")
        most = min(50, len(calls)) if restored else 50
        self.launches = self.eager_calls = launches or calls_for(self._sample("isolated"), most)

    def back_to_back(self) -> float:
        return self._sample("back_to_back", self.launches)

    def isolated(self) -> float:
        return self._sample("isolated")

    def cold(self) -> float:
        self._flush[:] = bytes(len(self._flush))
        return self._sample("cold")

    def eager(self) -> float:
        return self._sample("eager", self.eager_calls)

    def each(self, mode: str, *, calls: bool = True, first: bool = True) -> list[float]:
        return [self._sample(mode) if calls else 0.0 for _ in range(self.launches)]

    def calls_in(self, mode: str) -> int:
        return {"back_to_back": self.launches, "eager": self.eager_calls}.get(mode, 1)

    def answer(self, mode: str) -> Any:
        return self._answer

    def _sample(self, mode: str, count: int = 1) -> float:
        if self.before is not None:
            self.before()
        if self._restored is not None:
            for i in range(count):
                self._restored.restore(i)
        start = time.thread_time_ns()
        for i in range(count):
            self._answer = self._calls[i % len(self._calls)]()
        return (time.thread_time_ns() - start) / 1000.0 / count
