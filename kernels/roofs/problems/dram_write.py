"""Writing DRAM: rows of 1,024 words, each ``seed`` with the bits of a multiple of an odd constant flipped.

So that what is written is random bits, and each row is another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "bits of whole numbers"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong
MIX = 0x9E3779B1


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS", "WORDS")}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "dram_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """The row that all others are made of."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(-(2**31), 2**31, (params["SEED"],), generator=generator, dtype=torch.int32)
    return {"seed": row.to(device), "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Row r: ``seed ^ (r · MIX mod 2³²)``; clocks are zeros unless asked for."""
    import torch

    row = inputs["seed"]
    number = torch.arange(params["WORDS"] // params["SEED"], dtype=torch.int64, device=row.device)
    flips = _wrapped(number * MIX).to(torch.int32)
    out = (row ^ flips[:, None]).flatten().double()
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """Every word is written once."""
    return {"bytes": 4.0 * params["WORDS"], "dram_bytes": 4.0 * params["WORDS"]}


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
