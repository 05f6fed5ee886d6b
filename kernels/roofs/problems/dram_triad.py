"""Two streams in, one out: ``out = x + factor · y`` in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"rounded_once": "one fused multiply-add, rounded to fp32"}
FENCE = {"max": 1e-5, "mean": 1e-6}


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS", "WORDS")}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "dram_bytes", "GB/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Normal values, from the device's own generator: there are too many for another's."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    x, y = (torch.randn(params["WORDS"], generator=generator, device=device) for _ in range(2))
    return {"x": x, "y": y, "factor": 1.3125, "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """In fp64; clocks are zeros unless asked for."""
    import torch

    out = inputs["x"].double() + inputs["factor"] * inputs["y"].double()
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The product is exact in fp64; the sum is rounded to fp32."""
    answer = reference(inputs, params)
    return {**answer, "out": answer["out"].float()}


def work(params: Params) -> dict[str, float]:
    """Two words are read and one is written for each multiply-add."""
    words = float(params["WORDS"])
    return {"flop": 2 * words, "fp32_flop": 2 * words, "bytes": 12 * words, "dram_bytes": 12 * words}
