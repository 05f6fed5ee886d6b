"""Points of the plane, turned n times by ``x -= slope · y; y += slope · x``: two fp32 FMAs a turn.

The map keeps areas, so values neither run away nor settle. ``VALUES`` are x and y of points in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"fp32_fma": "each multiply-add rounded to fp32"}
#: Rounding errors of 16,384 turns walk to some 1e-5 and never grow by themselves.
FENCE = {"max": 1e-2, "mean": 1e-3}
STEPS = 16  # of each point, an iteration: the kernel's loop turn


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "fp32_flop", "TFLOP/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Normal points; slopes from 0.25 to 1, where one turn is 14 to 60 degrees."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    threads = (params["BLOCKS"], params["THREADS"])
    state = torch.randn(*threads, params["VALUES"], generator=generator)
    slope = 0.25 + 0.75 * torch.rand(threads, generator=generator)
    return {
        "state": state.to(device),
        "slope": slope.to(device),
        "iterations": params["ITERATIONS"],
        "clocked": 0,
    }


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The n-th power of the turn in closed form, in fp64; clocks are zeros unless asked for.

    The turn is ``M = [[1, -s], [s, 1 - s²]]`` with determinant 1 and trace ``2 cos t``, so
    ``Mⁿ = (sin(n t) M - sin((n - 1) t) I) / sin t``.
    """
    import torch

    turns = STEPS * inputs["iterations"]
    s = inputs["slope"].double()[..., None]
    angle = torch.acos(1 - s * s / 2)
    a = (turns * angle).sin() / angle.sin()
    b = ((turns - 1) * angle).sin() / angle.sin()
    x, y = inputs["state"].double().unflatten(-1, (-1, 2)).unbind(-1)
    out = torch.stack([(a - b) * x - a * s * y, a * s * x + (a * (1 - s * s) - b) * y], -1).flatten(-2)
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Turn by turn. A product of two fp32 numbers is exact in fp64; the sum is rounded to fp32."""
    import torch

    s = inputs["slope"].double()[..., None]  # in fp64, so that the sums are too
    x, y = (v.clone() for v in inputs["state"].unflatten(-1, (-1, 2)).unbind(-1))
    for _ in range(STEPS * inputs["iterations"]):
        x.addcmul_(s, y, value=-1)
        y.addcmul_(s, x)
    clocks = torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=x.device)
    return {"out": torch.stack([x, y], -1).flatten(-2), "clocks": clocks}


def work(params: Params) -> dict[str, float]:
    """One multiply-add, two FLOPs, a value and step."""
    values = float(params["BLOCKS"] * params["THREADS"] * params["VALUES"])
    flop = 2 * values * STEPS * params["ITERATIONS"]
    return {"flop": flop, "fp32_flop": flop, "bytes": 8 * values}
