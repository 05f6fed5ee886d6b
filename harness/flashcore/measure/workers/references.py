"""References and emulations of one shape's inputs, computed once for all its variants.

Works on tensors of any device; torch is imported inside the functions, which only children call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashcore.measure.workers.accuracy import errors
from flashcore.measure.workers.kernel_call import Case

if TYPE_CHECKING:
    from torch import Tensor


class References:
    """References and emulations of one shape, computed once for all its variants."""

    def __init__(self) -> None:
        self._shape: tuple[Any, ...] = ()
        self._kept: dict[tuple[Any, ...], Any] = {}

    def get(self, case: Case, problem: Any, device: str, seed: int, kind: str) -> tuple[Any, Any, Any, Any]:
        """For one seed and kind: inputs, the reference that this tolerance class is held to, the class's
        errors against it, and what its basis costs (``None`` for a class that computes on the inputs)."""
        shape = (case.root, case.problem_file, case.shape)
        if shape != self._shape:
            self._shape, self._kept = shape, {}
        params = dict(case.params)
        key = (seed, kind)
        if key not in self._kept:
            inputs = problem.make_inputs(dict(params), seed, device, kind)
            self._kept[key] = inputs, problem.reference(inputs, params)
        inputs, exact = self._kept[key]
        if (*key, case.tolerance) not in self._kept:
            # A class that quantises its inputs is held to the answer on the quantised ones, so that an error of the
            # kernel cannot hide behind that of the quantisation, which is reported separately.
            basis = problem.basis(case.tolerance, inputs, params) if hasattr(problem, "basis") else inputs
            reference = exact if basis is inputs else problem.reference(basis, params)
            cost = None if basis is inputs else {name: errors(reference[name], a) for name, a in exact.items()}
            emulated = problem.emulate(case.tolerance, inputs, params)
            entitled = {
                name: errors(_as_output(case, name, emulated[name]), answer) for name, answer in reference.items()
            }
            self._kept[(*key, case.tolerance)] = reference, entitled, cost
        return (inputs, *self._kept[(*key, case.tolerance)])


def _as_output(case: Case, name: str, emulated: Tensor) -> Tensor:
    """An emulation is kept in the type of the output that it stands for."""
    import torch

    dtype = next((a.dtype for a in case.arguments if a.name == name), "")
    return emulated.to(getattr(torch, dtype)) if dtype else emulated
