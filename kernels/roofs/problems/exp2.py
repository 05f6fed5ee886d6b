"""Sums of powers of two: ``out = Σ 2^(start + k · step)`` for k below n.

All exponents are multiples of 2⁻¹⁶ below 8, exact in fp32, however they are added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {
    "approx_exp2": "powers to 21 bits and a half (PTX promises ex2.approx 2^-22.5 or so), summed one by one in fp32"
}
FENCE = {"max": 0.5, "mean": 0.05}  # of sums up to some 10,000
STEPS = 8  # of each sum, an iteration: the kernel's loop turn
_TERMS = 64  # whose powers are taken at once


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "exp", "Gop/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Starts from -4 to 0, steps of 1 to 32 units up or down: at most 2 away after 4,096 of them."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    threads = (params["BLOCKS"], params["THREADS"])
    start = torch.randint(-(2**18), 0, (*threads, params["VALUES"]), generator=generator)
    units = torch.randint(1, 33, threads, generator=generator)
    sign = torch.randint(0, 2, threads, generator=generator) * 2 - 1
    return {
        "start": (start / 2**16).to(torch.float32).to(device),
        "step": (units * sign / 2**16).to(torch.float32).to(device),
        "iterations": params["ITERATIONS"],
        "clocked": 0,
    }


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The geometric sum in closed form, in fp64; clocks are zeros unless asked for."""
    import math

    import torch

    step = inputs["step"].double()[..., None] * math.log(2)
    terms = STEPS * inputs["iterations"]
    out = inputs["start"].double().exp2() * torch.expm1(terms * step) / torch.expm1(step)
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Term by term in fp32; of each power the last two bits are cleared."""
    import torch

    x, step = inputs["start"], inputs["step"][..., None]
    total, terms = torch.zeros_like(x), STEPS * inputs["iterations"]
    for start in range(0, terms, _TERMS):
        k = torch.arange(start, min(start + _TERMS, terms), device=x.device)[:, None, None, None]
        powers = (x + k * step).exp2_()
        for power in (powers.view(torch.int32) & ~3).view(torch.float32):
            total += power
    return {"out": total, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=x.device)}


def work(params: Params) -> dict[str, float]:
    """One power a value and step; the two additions that go with it are no part of the ceiling."""
    values = float(params["BLOCKS"] * params["THREADS"] * params["VALUES"])
    return {"exp": values * STEPS * params["ITERATIONS"], "bytes": 8 * values}
