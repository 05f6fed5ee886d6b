"""A timer whose clock only the timed functions advance; see :data:`flashcore.stages.bench.timing.STAND_IN`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from flashcore.runner.guarded import Outputs
from flashcore.stages.bench.timing import Calls, Restored, Timed
from tests import host_timer

#: ``us`` since the process began. Shared by all that load this file.
CLOCK: Any = sys.modules.setdefault("timer_clock", types.SimpleNamespace(us=0.0))  # type: ignore[arg-type]


class HostTimer(host_timer.HostTimer):
    def prepare(
        self,
        calls: Calls,
        launches: int | None = None,
        restored: Restored | None = None,
        outputs: Sequence[Outputs] = (),
        *,
        graphs: bool = True,
    ) -> Timed:
        return _Timed(calls, launches, restored, outputs)

    def nodes(self, call: Callable[[], object]) -> tuple[int, int] | str:
        call()
        return getattr(call, "obstacle", "") or (0 if getattr(call, "is_empty", False) else 1, 0)


class _Timed(host_timer.HostTimed):
    def _sample(self, mode: str, count: int = 1) -> float:
        began = CLOCK.us
        self._calls[0]()
        return float(CLOCK.us - began) * (2 if mode == "eager" else 1)
