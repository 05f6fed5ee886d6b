"""What torch makes of a copy: the peer that the DRAM copy is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "a copy"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("WORDS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "dram_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words, from the device's own generator: there are too many for another's."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    size = (params["WORDS"],)
    return {"x": torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32, device=device)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The input."""
    return {"out": inputs["x"].double()}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """Every word is read once and written once."""
    return {"bytes": 8.0 * params["WORDS"], "dram_bytes": 8.0 * params["WORDS"]}
