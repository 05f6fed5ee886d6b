"""`general.py` for the points of a map: inputs are made on the device, and the answers of a few heads are computed.

Where a head's answer is not computed it is NaN, which no answer is compared with; that every element is finite is still
checked. A point has up to 2^27 elements per tensor and 2^34 scores: the CPU's generator and the fp64 answers of all
heads take a second or more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import general  # type: ignore[import-not-found]
from general import FENCE, TOLERANCES, Inputs, Params, work

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FENCE", "KINDS", "PARTIAL", "TOLERANCES", "emulate", "make_inputs", "reference", "work"]

KINDS = ("normal",)
PARTIAL = True  # NaN in a reference is an answer that was not computed

#: Scores of the heads that are computed, at most, but for one head; and the most heads.
_SCORES, _HEADS = 1 << 26, 2


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Standard normal values from the device's generator."""
    import torch

    batch, heads, kv_heads, seq, depth = (int(params[d]) for d in ("B", "H", "HKV", "S", "D"))
    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, str(params["DTYPE"]))
    inputs: Inputs = {
        name: torch.randn((batch, n, seq, depth), generator=generator, dtype=dtype, device=device)
        for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    }
    return {**inputs, "scale": 1 / math.sqrt(depth), "causal": int(params["CAUSAL"])}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64, of a few heads."""
    return _of_heads(inputs, lambda some: general.reference(some, params))


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer of a few heads as a kernel of the tolerance class rounds it."""
    return _of_heads(inputs, lambda some: general.emulate(tolerance, some, params))


def _of_heads(inputs: Inputs, answer: Any) -> dict[str, Tensor]:
    """Answers of the last head, the first, and some between."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, heads, seq, _ = q.shape
    shared, pairs = heads // k.shape[1], batch * heads
    count = max(1, min(_HEADS, pairs, _SCORES // seq**2))
    answers: dict[str, Tensor] = {}
    for pair in {pairs - 1 - i * (pairs - 1) // max(1, count - 1) for i in range(count)}:
        b, h = divmod(pair, heads)
        g = h // shared
        some = {"q": q[b : b + 1, h : h + 1], "k": k[b : b + 1, g : g + 1], "v": v[b : b + 1, g : g + 1]}
        for name, values in answer({**inputs, **some}).items():
            if name not in answers:
                answers[name] = values.new_full((batch, heads, *values.shape[2:]), math.nan)
            answers[name][b, h] = values[0, 0]
    return answers
