"""An answer's errors against fp64, and their comparison with its tolerance class.

Works on tensors of any device. Only children call these functions, so torch is imported inside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashcore.runner.guarded import Outputs, any_of, read

if TYPE_CHECKING:
    from torch import Tensor

Flag = tuple[str, str]
#: The errors recorded per case, each the worst over seeds and kinds.
FACT_NAMES = ("max_error", "mean_error", "frobenius_error", "max_error_over_class", "frobenius_over_class")
#: Errors on the problem's first kind of input only: typical values.
NORMAL = ("normal_max_error", "normal_mean_error")
#: Errors of quantizing the inputs, for tolerance classes that quantize.
QUANTIZATION = ("quantization_max_error", "quantization_frobenius_error")
#: The largest allowed ratios of a variant's errors to its class's emulation.
FROBENIUS_LIMIT = 1.5
MAX_LIMIT = 2.0
#: Allowed relative bias of the answer's scale, beyond its class's bias and rounding noise: rounding errors cancel over
#: the elements, a wrong factor does not.
GAIN_LIMIT = 2e-4


@dataclass(frozen=True, slots=True)
class Errors:
    """An answer's errors against the reference.

    Args:
        max, mean: absolute errors.
        frobenius: Frobenius norm of the error over the reference's.
        ulp: one unit in the last place of the output's dtype at the largest reference magnitude.
        norm: the reference's Frobenius norm.
        at: index of the largest error; ``expected`` and ``answer`` are the values there.
        gain: the error's projection onto the reference, relative (0.001: the answer is 0.1 % too large overall).
        rows: number of rows over which rounding errors cancel.
    """

    max: float
    mean: float
    frobenius: float
    ulp: float
    norm: float
    at: tuple[int, ...]
    expected: float
    answer: float
    gain: float = 0.0
    rows: int = 1


def ulp(magnitude: float, dtype: Any) -> float:
    """One unit in the last place of ``dtype`` at ``magnitude``; 1 for integers."""
    import torch

    if not dtype.is_floating_point:
        return 1.0
    info = torch.finfo(dtype)
    smallest = info.smallest_normal
    return float(info.eps * 2.0 ** math.floor(math.log2(max(magnitude, smallest))))


def not_finite(answer: Tensor, reference: Tensor, *, partial: bool = False) -> Tensor:
    """Mask of the elements where the answer or the reference is NaN or Inf, and the other is not the same.

    Args:
        partial: NaN in the reference is an element whose answer was not computed: there any finite one will do.
    """
    values, none = answer.double(), reference.isnan()
    same = (values == reference) | (none & (values.isfinite() if partial else values.isnan()))
    mask: Tensor = ~(values.isfinite() & reference.isfinite() | same)
    return mask


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Mask of the elements that differ in any bit: equal NaNs do not, 0 and -0 do."""
    import torch

    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    mask: Tensor = a.contiguous().view(integer) != b.contiguous().view(integer)
    return mask


def errors(computed: Tensor, reference: Tensor) -> Errors:
    """Compares an answer with the fp64 reference, at elements where the reference is finite."""
    return examined({}, {"": (computed, reference)})[1][""]


def examined(
    flags: Mapping[Flag, Tensor], pairs: Mapping[str, tuple[Tensor, Tensor]]
) -> tuple[list[Flag], dict[str, Errors]]:
    """The keys of the true flags, and the errors of answers against their references, read from the device at once,
    since each read synchronizes."""
    parts = {("", name): _parts(*pair) for name, pair in pairs.items() if pair[1].numel()}
    numbers = read({**flags, **parts})
    made = {name: _errors(numbers.get(("", name), ()), *pair) for name, pair in pairs.items()}
    return [key for key in flags if any(numbers[key])], made


def _parts(computed: Tensor, reference: Tensor) -> Tensor:
    """The numbers that :func:`_errors` needs, on the device."""
    import torch

    values = computed.double()
    finite = reference.isfinite()
    signed = torch.where(finite, values - reference, 0.0)
    difference = signed.abs()
    finite_reference = torch.where(finite, reference, 0.0)
    worst = difference.argmax()  # NaN counts as the largest, as intended
    parts = (
        worst,
        finite.sum(),
        difference.take(worst),
        difference.sum(),
        difference.norm(),
        finite_reference.norm(),
        finite_reference.abs().max(),
        (signed * finite_reference).sum(),
        reference.take(worst),
        values.take(worst),
    )
    return torch.stack([part.double() for part in parts])


def _errors(numbers: Sequence[float], computed: Tensor, reference: Tensor) -> Errors:
    import numpy

    if not numbers:
        return Errors(0.0, 0.0, 0.0, ulp(0.0, computed.dtype), 1.0, (0,) * reference.dim(), math.nan, math.nan)
    index, count, most, total, frobenius, norm, largest, along, expected, answer = numbers
    return Errors(
        max=most,
        mean=total / max(1.0, count),
        frobenius=frobenius / norm if norm > 0 else frobenius,
        ulp=ulp(largest, computed.dtype),
        norm=norm if norm > 0 else 1.0,
        # torch.unravel_index would import sympy, which takes seconds.
        at=tuple(int(i) for i in numpy.unravel_index(int(index), tuple(reference.shape))),
        expected=expected,
        answer=answer,
        gain=along / norm**2 if norm > 0 else 0.0,
        rows=math.prod(reference.shape[:-1]),
    )


def over_class(measured: Errors, entitled: Errors) -> tuple[float, float]:
    """The largest and the Frobenius error, each over the emulation's.

    An emulation without error (with one key, the output equals a value) counts as half an ulp in one element, the limit
    of the output's type.
    """
    return (
        measured.max / (entitled.max or entitled.ulp / 2),
        measured.frobenius / (entitled.frobenius or entitled.ulp / 2 / entitled.norm),
    )


def largest_allowed(entitled: Errors) -> float:
    """The largest error that one element of an answer may have, given the emulation's errors."""
    return MAX_LIMIT * entitled.max + entitled.ulp


def beyond_tolerance(measured: Errors, entitled: Errors, tolerance: str, fence: Mapping[str, float]) -> list[str]:
    """Complaints about an answer's errors; empty if it is within its tolerance class and the fence."""
    place = f"at {list(measured.at)}: expected {measured.expected:.6g}, found {measured.answer:.6g}"
    complaints = []
    limit = largest_allowed(entitled)
    if not measured.max <= limit:
        complaints.append(
            f"max error {measured.max:.3g} exceeds {limit:.3g} ({MAX_LIMIT:g} × the emulation of {tolerance} "
            f"+ 1 ulp), {place}"
        )
    # One element may be off by 1 ulp.
    limit = FROBENIUS_LIMIT * entitled.frobenius + entitled.ulp / entitled.norm
    if not measured.frobenius <= limit:
        complaints.append(
            f"relative Frobenius error {measured.frobenius:.3g} exceeds {limit:.3g} "
            f"({FROBENIUS_LIMIT:g} × the emulation of {tolerance} + 1 ulp in one element)"
        )
    for name, value in (("max", measured.max), ("mean", measured.mean)):
        if not value <= fence[name]:
            complaints.append(f"{name} error {value:.3g} is beyond the problem's fence of {fence[name]:g}, {place}")
    limit = (
        FROBENIUS_LIMIT * abs(entitled.gain) + 6 * entitled.frobenius / math.sqrt(max(measured.rows, 1)) + GAIN_LIMIT
    )
    size = "large" if measured.gain > 0 else "small"
    if not abs(measured.gain) <= limit + entitled.ulp / entitled.norm:
        complaints.append(
            f"the answer's scale is too {size} by {abs(measured.gain):.3g} (relative), "
            f"expected at most {limit:.3g}: a wrong factor, since {tolerance} rounds without bias"
        )
    return complaints


def unsound(
    outputs: Outputs, unwritten: Mapping[str, Tensor], answers: Mapping[str, Tensor], *, partial: bool
) -> dict[Flag, Tensor]:
    """Flags on the device: out-of-bounds writes, unwritten elements, and what is :func:`not_finite`. ``unwritten``:
    masks by output."""
    return (
        {("guard", name): guard.is_damaged() for name, guard in outputs.guards.items()}
        | {("unwritten", name): mask.any() for name, mask in unwritten.items()}
        | {("infinite", name): not_finite(outputs[name], a, partial=partial).any() for name, a in answers.items()}
    )


def soundness(
    outputs: Outputs, unwritten: Mapping[str, Tensor], answers: Mapping[str, Tensor], *, partial: bool = False
) -> list[str]:
    """Complaints about what :func:`unsound` flags; empty if there are none."""
    flags = any_of(unsound(outputs, unwritten, answers, partial=partial))
    infinite = {
        name: not_finite(outputs[name], answers[name], partial=partial) for kind, name in flags if kind == "infinite"
    }
    complaints = []
    for kind, name in flags:
        if kind == "guard":
            complaints.append(f"{name}: out-of-bounds write: {outputs.guards[name].damage()}")
        elif kind == "unwritten":
            mask = unwritten[name]
            complaints.append(f"{name}: {_count(mask)} elements never written, the first at {_first(mask)}")
        elif flags[0][0] == "infinite":  # poison that was not overwritten is NaN too
            at = _first(infinite[name])
            complaints.append(
                f"{name}: {_count(infinite[name])} elements not finite, the first at {at}: "
                f"expected {float(answers[name][tuple(at)]):.6g}, found {float(outputs[name][tuple(at)])}"
            )
    return complaints


def _count(mask: Tensor) -> str:
    return f"{int(mask.sum())} of {mask.numel()}"


def _first(mask: Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[0]]
