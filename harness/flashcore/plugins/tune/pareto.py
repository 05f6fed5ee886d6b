"""The Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def front(found: Sequence[tuple[T, Sequence[float]]]) -> list[T]:
    """The candidates that are not dominated, by the first objective; all objectives are to be small."""
    kept = [
        (own, values)
        for own, values in found
        if not any(
            all(b <= a for a, b in zip(values, other, strict=True)) and list(other) != list(values)
            for _, other in found
        )
    ]
    return [own for own, _ in sorted(kept, key=lambda pair: list(pair[1]))]
