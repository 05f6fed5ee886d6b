"""Reading L2: each block adds up ``iterations`` tiles of a working set that stays in L2.

Block b starts at tile ``b · tiles // BLOCKS`` and walks on, round the end. The words are random bits.
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
TILE = 8192


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """As many blocks an SM on a machine with ``sms`` of them, and a third of its L2 as working set."""
    tiles = max(1, l2_bytes // 3 // (4 * TILE))
    return {**params, "SMS": sms, "BLOCKS": params["BLOCKS"] // params["SMS"] * sms, "WORDS": tiles * TILE}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "l2_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    size = (params["WORDS"],)
    x = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32, device=device)
    return {"x": x, "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The sum of each block's walk; clocks are zeros unless asked for."""
    import torch

    blocks = params["BLOCKS"]
    sums = inputs["x"].view(-1, TILE).sum(1, dtype=torch.int64)
    tiles = len(sums)
    rounds, rest = divmod(inputs["iterations"], tiles)
    until = torch.nn.functional.pad(torch.cat([sums, sums]).cumsum(0), (1, 0))  # before each tile
    first = torch.arange(blocks, device=sums.device) * tiles // blocks
    out = _wrapped(rounds * sums.sum() + until[first + rest] - until[first]).double()
    return {"out": out, "clocks": torch.zeros(blocks, 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """The working set comes from DRAM once, if at all; every tile that is walked over comes from L2."""
    return {
        "bytes": 4.0 * params["WORDS"],
        "l2_bytes": 4.0 * TILE * params["ITERATIONS"] * params["BLOCKS"],
    }


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
