"""Reading an SM's own memory: each block adds up its tile ``iterations`` times.

``MEMORY`` says which memory it is: ``l1`` or ``shared``. The words are random bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "sums modulo 2^32"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return f"{params['MEMORY']}_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = (params["BLOCKS"], params["WORDS"])
    x = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32)
    return {"x": x.to(device), "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The sum of each block's tile, so many times; clocks are zeros unless asked for."""
    import torch

    sums = inputs["x"].sum(1, dtype=torch.int64)
    out = _wrapped(inputs["iterations"] * _wrapped(sums)).double()
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """A tile comes from DRAM once and is read again and again where it lies."""
    tiles = 4.0 * params["WORDS"] * params["BLOCKS"]
    return {"bytes": tiles, ceiling(params)[0]: tiles * params["ITERATIONS"]}


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
