"""Kernels that do nothing, 32 in a row; the last one writes ``out = x + 1``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "whole numbers"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong
LAUNCHES = 32  # a call: what the variant's plan launches


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "launches", "us"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = (params["BLOCKS"], params["THREADS"])
    return {"x": torch.randint(0, 2**30, size, generator=generator, dtype=torch.int32).to(device), "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Clocks are zeros unless asked for."""
    import torch

    out = inputs["x"].double() + 1
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """Launches, one after the other."""
    return {"launches": float(LAUNCHES)}
