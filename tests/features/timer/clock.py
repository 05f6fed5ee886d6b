"""A timer whose clock only the timed functions advance; see :data:`flashcore.stages.bench.timing.STAND_IN`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from tests import host_timer

#: ``us`` since the process began. Shared by all that load this file.
CLOCK: Any = sys.modules.setdefault("timer_clock", types.SimpleNamespace(us=0.0))  # type: ignore[arg-type]


class HostTimer(host_timer.HostTimer):
    def timed(self) -> type[host_timer.HostTimed]:
        return _Timed

    def nodes(self, call: Callable[[], object]) -> tuple[int, int] | str:
        call()
        return getattr(call, "obstacle", "") or getattr(call, "nodes", (1, 0))


class _Timed(host_timer.HostTimed):
    def _sample(self, mode: str, count: int = 1) -> float:
        began = CLOCK.us
        self._calls[0]()
        return float(CLOCK.us - began) * (2 if mode == "eager" else 1)
