"""Measurements of a GPU's power."""

from __future__ import annotations

from typing import Any


def steady(watts: float, sensor: float | None = None, updates: int = 20, others: int = 0, wobble: float = 0) -> Any:
    """Readings of a constant power, with a wobble (mJ) of every second update."""
    counted = [(0.1 * i, 100 * watts * i + wobble * (i % 2)) for i in range(updates)]
    return {"updates": counted, "power": [sensor or watts] * 3, "others": others}
