"""Makes a problem's inputs once for several callers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from flashcore.runner.guarded import copied

#: Most bytes that are kept; other inputs are made again.
_MOST_BYTES = 1 << 30
#: Offset from the problem's first seed to the seeds of inputs that no warm-up call has used.
NEW_SEED = 1000


def bytes_of(inputs: dict[str, Any]) -> int:
    """The bytes of all tensors."""
    return sum(getattr(x, "nbytes", 0) for x in inputs.values())


@functools.cache
def make_inputs_once(problem: ModuleType) -> None:
    """Makes the inputs of a shape, seed and kind once, if few others are used in between, for a process that uses one
    device; each caller gets separate tensors."""
    import torch

    make = problem.make_inputs
    made: dict[object, dict[str, Any]] = {}  # those used last are last

    def copies(params: dict[str, Any], seed: int, device: str, kind: str = problem.KINDS[0]) -> dict[str, Any]:
        key = problem, str(params), seed, kind
        if key not in made:
            made[key] = make(dict(params), seed, device, kind)
        inputs = made[key] = made.pop(key)
        while sum(map(bytes_of, made.values())) > _MOST_BYTES:
            del made[next(iter(made))]
        if key not in made:
            return inputs
        return {name: copied(x, device) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}

    problem.make_inputs = copies  # type: ignore[attr-defined]
