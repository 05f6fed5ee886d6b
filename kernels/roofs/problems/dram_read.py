"""Reading DRAM: the sum of all words, block by block, modulo 2³².

Tile t (8,192 words) is block ``t mod BLOCKS``'s. The words are random bits.
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
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS", "WORDS")}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "dram_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words, from the device's own generator: there are too many for another's."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    size = (params["WORDS"],)
    x = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32, device=device)
    return {"x": x, "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The sum of each block's tiles; clocks are zeros unless asked for."""
    import torch

    blocks = params["BLOCKS"]
    tiles = inputs["x"].view(-1, TILE).sum(1, dtype=torch.int64)
    padded = torch.nn.functional.pad(tiles, (0, -len(tiles) % blocks))
    out = _wrapped(padded.view(-1, blocks).sum(0)).double()
    return {"out": out, "clocks": torch.zeros(blocks, 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """Every word is read once."""
    return {"bytes": 4.0 * params["WORDS"], "dram_bytes": 4.0 * params["WORDS"]}


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
