"""Softmax over the rows of an fp32 matrix ``[R, C]``. torch is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal", "large", "constant_rows")
TOLERANCES = {
    "fp32": (
        "exponentials to 22 bits and the reciprocal to 1 ulp, as the special-function unit promises them; "
        "the row summed in fp32, where each addition rounds"
    )
}

#: Outer fence on absolute errors, whatever the class: a softmax lies between 0 and 1.
FENCE = {"max": 1e-4, "mean": 1e-5}


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Every argument of the operator but the output.

    ``normal``: standard normal values. ``large``: times 50 and moved by 1,000, where exp() would
    overflow without the row's maximum taken off. ``constant_rows``: every answer is 1 / C.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(int(params["R"]), int(params["C"]), generator=generator)
    if kind == "large":
        x = x * 50 + 1000
    elif kind == "constant_rows":
        x = x[:, :1].expand(-1, int(params["C"])).contiguous()
    return {"x": x.to(device)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64."""
    return {"out": inputs["x"].double().softmax(-1)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the tolerance class rounds it.

    Args:
        tolerance: ``fp32``, the only one: exponentials are taken in base 2 as the hardware does it, so
            their argument is rounded once more, and are good to 22 bits, 2 ulp. The reciprocal (1 ulp)
            and the sum err as far as they may, and both the same way: where few rows have large answers, their
            roundings may happen to be small, which does not bound what another order of additions makes of them.

            The PTX ISA (9.7.3, "Floating Point Instructions") has ``ex2.approx.f32`` within 2 ulp of the correctly
            rounded result, ``rcp.approx.f32`` within 1, and ``div.approx.f32`` (``__fdividef``) within 2; the CUDA
            programming guide ("Mathematical Functions") has ``expf`` within 2, and ``__expf`` within
            2 + floor(1.173 |x|), since it rounds the argument as is done here. The half ulp of the correct rounding,
            and errors that are all 2 ulp, are within the limits on the ratio of a kernel's errors to these.

    Raises:
        ValueError: no such class.
    """
    import torch

    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    x = inputs["x"]
    weights = _to_bits(((x - x.amax(-1, keepdim=True)) * 1.4426950408889634).double().exp2(), 22).float()
    total = torch.zeros_like(x[:, 0])
    for column in weights.T:
        total = total + column
    sums = weights.double().cumsum(-1)
    error = torch.maximum(_rounding(weights, sums), (total - sums[:, -1]).abs())
    factor = ((1 - 2**-23) / (sums[:, -1] + error)).float()
    return {"out": weights * factor.unsqueeze(-1)}


def _rounding(weights: Tensor, sums: Tensor) -> Tensor:
    """What additions in fp32 may round each row's last sum by: the root of the sum of the squares of what each may,
    half an ulp of its sum and no more than what is added; 1.7 standard deviations where many round."""
    import torch

    half = torch.ldexp(torch.full_like(sums, 2.0**-25), torch.frexp(sums)[1])
    steps = torch.minimum(half, torch.minimum(weights.double(), sums - weights))
    most: Tensor = torch.where(sums == sums.float(), 0.0, steps).norm(dim=-1)
    return most


def _to_bits(x: Tensor, bits: int) -> Tensor:
    """fp64 values rounded to so many significant bits."""
    import torch

    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)


def work(params: Params) -> dict[str, float]:
    """An element costs a subtraction, an exponential, an addition and a product; 4 bytes in, 4 out."""
    elements = float(params["R"]) * float(params["C"])
    return {"flop": 3 * elements, "bytes": 8 * elements, "fp32_flop": 3 * elements, "exp": elements}


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """Every row of a softmax adds up to 1."""
    worst = float((call(inputs)["out"].double().sum(-1) - 1).abs().max())
    return [] if worst <= 1e-5 else [f"rows add up to 1 ± {worst:.2g}; expected at most ± 1e-05"]
