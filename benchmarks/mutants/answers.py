"""Mutants of answers, against the check's judge: what a faulty attention kernel would give, computed on the CPU.

Each operator changes one thing of the computation or of its result; the judge sees what it sees on a GPU. All kinds of
inputs count: a mutant is noticed if one of them shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PARAMS = {"B": 1, "H": 2, "S": 192, "D": 64}
CLASS = "fused_fp16_p"

Change = Callable[[Any], Any]


def _same(x: Any) -> Any:
    return x


def mutants() -> Iterator[tuple[str, Change, Change]]:
    """(name, change of the inputs, change of the output)."""
    for factor in (1.0005, 0.9995, 1.001, 0.999, 1.01, 0.9, 1.1, 2.0, -1.0, 0.0):
        yield f"output × {factor:g}", _same, _times(factor)
    for factor in (1.001, 0.999, 1.01, 0.99, 1.1, 0.5, 2.0, -1.0):
        yield f"scale × {factor:g}", _of("scale", _times(factor)), _same
    for name in ("k", "v"):
        yield f"the last key's row of {name} is zero", _of(name, _set((..., -1, slice(None)), 0.0)), _same
        yield f"the first two rows of {name} exchanged", _of(name, _first_two), _same
        yield f"rows of {name} shifted by one", _of(name, lambda x: x.roll(1, -2)), _same
        yield f"heads of {name} exchanged", _of(name, lambda x: x.flip(1)), _same
        yield f"columns of {name} reversed", _of(name, lambda x: x.flip(-1)), _same
    for count in (1, 8, 16, 64):
        yield f"the last {count} keys left out", _of("kv", _cut(count)), _same
        yield f"{count} padded keys taken in", _of("kv", _padded(count)), _same
    places = {"the last row": (..., -1, slice(None)), "the last column": (..., -1), "one element": (0, 1, 7, 9)}
    for name, place in places.items():
        for value in (0.0, math.nan, math.inf):
            yield f"{name} of the output is {value:g}", _same, _set(place, value)
    yield "one element off by 0.01", _same, lambda o: _set((0, 1, 7, 9), float(o[0, 1, 7, 9]) + 0.01)(o)
    yield "two rows of the output exchanged", _same, _first_two
    yield "output shifted by 0.001", _same, lambda o: o + 0.001
    yield "output rounded to bf16", _same, lambda o: o.bfloat16().to(o.dtype)
    yield "output rounded to fp8", _same, lambda o: o.float().clamp(-448, 448).to(_fp8()).to(o.dtype)
    yield "each element a unit or two up", _same, _up
    yield "elements below 0.001 set to 0", _same, lambda o: o.where(o.abs() > 1e-3, 0.0)


def _times(factor: float) -> Change:
    return lambda x: x * factor


def _of(names: str, change: Change) -> Change:
    """The change of these inputs alone."""
    keys = [names] if names == "scale" else list(names)
    return lambda inputs: {**inputs, **{k: change(inputs[k]) for k in keys}}


def _set(place: Any, value: float) -> Change:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[place] = value
        return x

    return change


def _first_two(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, :, :2] = x[:, :, [1, 0]]
    return x


def _cut(count: int) -> Change:
    return lambda x: x[:, :, :-count]


def _padded(count: int) -> Change:
    def change(x: Tensor) -> Tensor:
        import torch

        return torch.cat([x, torch.zeros_like(x[:, :, :count])], 2)

    return change


def _up(x: Tensor) -> Tensor:
    """Each element up by one to two units in its last place."""
    return x + (x.abs() * 2**-10).to(x.dtype)


def _fp8() -> Any:
    import torch

    return torch.float8_e4m3fn


class Judge:
    """The check's judge on the CPU, for the attention suite's own problem."""

    def __init__(self, suite: Path) -> None:
        from flashcore.runner.accuracy import errors
        from flashcore.runner.problem_file import load_problem

        self.problem = load_problem(str(suite), "problem.py")
        self._known = []
        for kind in (*self.problem.KINDS, *self.problem.EDGE_KINDS):
            inputs = self.problem.make_inputs(PARAMS, 0, "cpu", kind)
            reference = self.problem.reference(inputs, PARAMS)["out"]
            entitled = errors(self.problem.emulate(CLASS, inputs, PARAMS)["out"], reference)
            self._known.append((kind, inputs, reference, entitled))

    def complaints(self, change_inputs: Change, change_output: Change) -> list[str]:
        """The complaints about a kernel of this tolerance class with one planted change."""
        from flashcore.runner.accuracy import beyond_tolerance, errors, not_finite

        complaints = []
        for kind, inputs, reference, entitled in self._known:
            answer = change_output(self.problem.emulate(CLASS, change_inputs(inputs), PARAMS)["out"])
            if not_finite(answer, reference).any():
                complaints.append(f"not finite, on kind {kind}")
            else:
                error_sizes = errors(answer, reference)
                complaints += [
                    f"{text}, on kind {kind}"
                    for text in beyond_tolerance(error_sizes, entitled, CLASS, self.problem.FENCE)
                ]
        return complaints
