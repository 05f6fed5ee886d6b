"""The objectives of a space, all to be small, and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashcore.plugins.tune.space import Space
from flashcore.plugins.tune.study import Result

TIME = "time:"


def objective_names(space: Space) -> list[str]:
    """The space's objectives, with one for the time of each shape: ``time:mission``."""
    times = [f"{TIME}{shape}" for shape in space.shapes]
    return [name for objective in space.objectives for name in (times if objective == "time" else [objective])]


def objective_values(result: Result, names: Sequence[str]) -> list[float] | None:
    """A timed candidate's objectives, times in us; ``None`` if it was rejected or one is missing."""
    if result.fell:
        return None
    measured = {**result.facts, "error": result.error, **{f"{TIME}{s}": us for s, us in result.times.items()}}
    values = [value for name in names if (value := measured.get(name)) is not None]
    return values if len(values) == len(names) else None


def front(candidates: Mapping[int, Sequence[float]]) -> list[int]:
    """The numbers of the candidates that no other dominates, in the order of their objectives."""
    kept = [
        (values, index)
        for index, values in candidates.items()
        if not any(
            other != values and all(b <= a for a, b in zip(values, other, strict=True)) for other in candidates.values()
        )
    ]
    return [index for _, index in sorted(kept)]
