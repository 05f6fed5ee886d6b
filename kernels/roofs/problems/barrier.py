"""Barriers, sixteen an iteration; between iterations each thread steps a number of its own, ``v = 3v + 1``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"exact": "whole numbers modulo 2^32"}
FENCE = {"max": 0.5, "mean": 0.0}  # whole numbers: equal or wrong
BARRIERS = 16  # an iteration: the kernel's loop turn


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """One block an SM, in whole clusters of eight, on a machine that has ``sms`` SMs."""
    return {**params, "SMS": sms, "BLOCKS": max(8, sms // 8 * 8)}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "barriers", "us"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Random words."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = (params["BLOCKS"], params["THREADS"])
    words = torch.randint(-(2**31), 2**31, size, generator=generator, dtype=torch.int32)
    return {"seed": words.to(device), "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """``3ⁿ v + (3ⁿ - 1) / 2``; clocks are zeros unless asked for."""
    import torch

    power = pow(3, inputs["iterations"], 2**33)
    value = inputs["seed"].to(torch.int64) * (power % 2**32) + (power - 1) // 2
    out = _wrapped(value).double()
    return {"out": out, "clocks": torch.zeros(params["BLOCKS"], 4, dtype=torch.float64, device=out.device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference: there is nothing to round."""
    return reference(inputs, params)


def work(params: Params) -> dict[str, float]:
    """The barriers that each block passes, one after the other."""
    return {"barriers": float(BARRIERS * params["ITERATIONS"])}


def _wrapped(x: Tensor) -> Tensor:
    """Modulo 2³², as a signed 32-bit number."""
    return ((x + 2**31) & 0xFFFFFFFF) - 2**31
