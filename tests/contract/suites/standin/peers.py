"""torch's multiplication, with a duration."""

from __future__ import annotations

import sys
from typing import Any


def library(x: Any, factor: float) -> Any:
    sys.modules["standin_clock"].us += 12.0  # type: ignore[attr-defined]
    return x * factor
