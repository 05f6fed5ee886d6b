"""Reference answers and emulations for a shape's inputs, computed once for all its variants.

Works on tensors of any device. Only children call these functions, so torch is imported inside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashcore.errors import UsageError
from flashcore.runner.accuracy import Errors, beyond_tolerance, errors, examined, soundness, unsound
from flashcore.runner.guarded import Outputs
from flashcore.runner.inputs import bytes_of
from flashcore.runner.kernel_call import KernelCall

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected answer of a tolerance class on one seed and kind of input.

    Args:
        reference: output → the fp64 answer.
        entitled: output → the errors of the class's emulation against it.
        cost: output → the errors of quantizing the inputs; empty if the class does not quantize them.
        partial: NaN in the reference is an element whose answer was not computed.
    """

    inputs: dict[str, Any]
    reference: dict[str, Tensor]
    entitled: dict[str, Errors]
    cost: dict[str, Errors]
    tolerance: str
    fence: Mapping[str, float]
    partial: bool

    def judged(self, name: str, measured: Errors) -> list[str]:
        """Complaints about an output's errors; empty if they are within the tolerance class and the fence."""
        return beyond_tolerance(measured, self.entitled[name], self.tolerance, self.fence)

    def complaints(self, outputs: Outputs) -> list[str]:
        """Complaints about a variant's answer; empty if it is sound and its errors are within the class."""
        flags, measured = examined(unsound(outputs, {}, self.reference, partial=self.partial), self.pairs(outputs))
        if flags:
            return soundness(outputs, {}, self.reference, partial=self.partial)
        return [complaint for name, one in measured.items() for complaint in self.judged(name, one)]

    def pairs(self, outputs: Outputs) -> dict[str, tuple[Tensor, Tensor]]:
        """Output → (answer, reference)."""
        return {name: (outputs[name], answer) for name, answer in self.reference.items()}


_Exact = dict[tuple[int, str], tuple[Any, Any]]


class References:
    """A cache of reference answers and emulations, by shape.

    Attributes:
        most: bytes above which earlier shapes are dropped; 0: whenever another shape is used.
    """

    def __init__(self) -> None:
        self.most = 0
        #: Shape → (exact answers by seed and kind, expected answers by tolerance class too), last used last.
        self._shapes: dict[tuple[str, ...], tuple[_Exact, dict[tuple[int, str, str], Expected]]] = {}

    def get(self, case: KernelCall, problem: Any, device: str, seed: int, kind: str) -> Expected:
        """The expected answer of a case on one seed and kind of input."""
        shape = (case.root, case.problem_file, case.shape)
        if shape not in self._shapes:
            while self._shapes and self.most <= sum(
                bytes_of(part) for exact, _ in self._shapes.values() for pair in exact.values() for part in pair
            ):
                del self._shapes[next(iter(self._shapes))]
        exacts, results = self._shapes[shape] = self._shapes.pop(shape, ({}, {}))
        params, partial = dict(case.params), getattr(problem, "PARTIAL", False)
        if (seed, kind) not in exacts:
            inputs = problem.make_inputs(dict(params), seed, device, kind)
            answers = problem.reference(inputs, params)
            if missing := [a.name for a in case.arguments if a.mutable and a.name not in answers]:
                expected = "expected a reference answer for every output"
                raise UsageError(f"{case.problem_file}: {expected}; {missing} have none")
            if partial and (empty := [name for name, a in answers.items() if a.numel() and not a.isfinite().any()]):
                expected = "expected the answers of some elements, although it is PARTIAL"
                raise UsageError(f"{case.problem_file}: {expected}; {empty} have none: any number would be right")
            exacts[seed, kind] = inputs, answers
        inputs, exact = exacts[seed, kind]
        key = (seed, kind, case.tolerance)
        if key not in results:
            # A class that quantizes its inputs is compared with the answer on the quantized inputs, so that the
            # quantization error, which is reported separately, cannot hide a kernel's error.
            basis = problem.basis(case.tolerance, inputs, params) if hasattr(problem, "basis") else inputs
            reference = exact if basis is inputs else problem.reference(basis, params)
            cost = {} if basis is inputs else {name: errors(reference[name], a) for name, a in exact.items()}
            emulated = problem.emulate(case.tolerance, inputs, params)
            entitled = {
                name: errors(_as_output(case, name, emulated[name]), answer) for name, answer in reference.items()
            }
            results[key] = Expected(inputs, reference, entitled, cost, case.tolerance, problem.FENCE, partial)
        return results[key]


def _as_output(case: KernelCall, name: str, emulated: Tensor) -> Tensor:
    """The emulation in its output's dtype."""
    import torch

    dtype = next((a.dtype for a in case.arguments if a.name == name), "")
    return emulated.to(getattr(torch, dtype)) if dtype else emulated
