"""out[r] = the sum of row r of x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"fp32_sum": "summed in fp32, in any order"}
FENCE = {"max": 1e-2, "mean": 1e-3}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A matrix of ``M`` rows and ``K`` columns of small integers, whose sums are exact in any order."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randint(-8, 9, (params["M"], params["K"]), generator=generator, device=device).float()}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return {"out": inputs["x"].double().sum(1)}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float32."""
    return {"out": inputs["x"].cumsum(1)[:, -1]}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """An addition per element; each element read once."""
    elements = params["M"] * params["K"]
    return {"flop": elements, "fp32_flop": elements, "bytes": 4 * (elements + params["M"])}
