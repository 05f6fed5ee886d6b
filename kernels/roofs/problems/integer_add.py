"""Pairs of numbers along Fibonacci's sequence, n times: ``a += b; b += a`` modulo 2³²."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "sums modulo 2^32"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong
STEPS = 16  # of each pair, an iteration: the kernel's loop turn


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "instructions", "Gop/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = (params["BLOCKS"], params["THREADS"], params["VALUES"])
    words = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32)
    return {"seed": words.to(device), "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The n-th power of ``[[1, 1], [1, 2]]``; clocks are zeros unless asked for.

    Its entries are Fibonacci numbers; products may pass 2⁶³, which leaves the low 32 bits alone.
    """
    import torch

    before, at = _fibonacci(2 * STEPS * inputs["iterations"])
    after = _signed(before + at)
    before, at = _signed(before), _signed(at)
    a, b = inputs["seed"].to(torch.int64).unflatten(-1, (-1, 2)).unbind(-1)
    out = torch.stack([before * a + at * b, at * a + after * b], -1).flatten(-2)
    clocks = torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)
    return {"out": _wrapped(out).double(), "clocks": clocks}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """One warp instruction for 32 additions."""
    values = float(params["BLOCKS"] * params["THREADS"] * params["VALUES"])
    return {"instructions": values / 32 * STEPS * params["ITERATIONS"], "bytes": 8 * values}


def _fibonacci(n: int) -> tuple[int, int]:
    """Fibonacci's numbers n - 1 and n modulo 2³², n >= 1, by doubling."""
    before, at = 1, 0  # of n = 0
    for bit in bin(n)[2:]:
        before, at = before * before + at * at, at * (2 * before + at)
        if bit == "1":
            before, at = at, before + at
        before, at = before % 2**32, at % 2**32
    return before, at


def _signed(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
