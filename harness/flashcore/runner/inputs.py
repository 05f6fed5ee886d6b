"""Makes a problem's inputs once for several callers, also before there are tasks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flashcore.runner.guarded import copied
from flashcore.runner.problem_file import load_problem
from flashcore.suites.load import load

#: Most bytes that are kept; other inputs are made again.
_MOST_BYTES = 1 << 30
#: Offset from the problem's first seed to the seeds of inputs that no warm-up call has used.
NEW_SEED = 1000
#: Environment variable: lines of the suite's folder and of the shapes whose inputs are made ahead.
AHEAD = "FLASHCORE_AHEAD"
#: Most bytes of host memory with inputs made ahead.
_MOST_AHEAD = 4 << 30
#: Inputs made ahead, in host memory, by problem, parameters, seed and kind.
_ahead: dict[object, dict[str, Any]] = {}


def ahead() -> list[Callable[[], object]]:
    """Functions that each make a shape's inputs on the CPU."""
    root, *names = os.environ.get(AHEAD, "").split("\n")

    def make(name: str) -> None:
        suite = load(root)
        shape = suite.shapes[name]
        declared, params = suite.problems[shape.problem], dict(shape.params)
        problem = load_problem(root, declared.file)
        for seed in (declared.seeds[0], declared.seeds[0] + NEW_SEED):
            if sum(map(bytes_of, _ahead.values())) < _MOST_AHEAD:
                _ahead[problem, str(params), seed, problem.KINDS[0]] = problem.make_inputs(dict(params), seed, "cpu")

    return [functools.partial(make, name) for name in names]


def bytes_of(inputs: dict[str, Any]) -> int:
    return sum(getattr(x, "nbytes", 0) for x in inputs.values())


@functools.cache
def make_inputs_once(problem: ModuleType) -> None:
    """Makes the inputs of a shape, seed and kind once, if few others are used in between, for a process that uses one
    device; each caller gets separate tensors."""
    import torch

    make = problem.make_inputs
    made: dict[object, dict[str, Any]] = {}  # those used last are last

    def copies(params: dict[str, Any], seed: int, device: str, kind: str = problem.KINDS[0]) -> dict[str, Any]:
        def on_device(inputs: dict[str, Any]) -> dict[str, Any]:
            return {name: copied(x, device) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}

        key = problem, str(params), seed, kind
        if key not in made:
            made[key] = on_device(_ahead[key]) if key in _ahead else make(dict(params), seed, device, kind)
        inputs = made[key] = made.pop(key)
        while sum(map(bytes_of, made.values())) > _MOST_BYTES:
            del made[next(iter(made))]
        return on_device(inputs) if key in made else inputs

    problem.make_inputs = copies  # type: ignore[attr-defined]
