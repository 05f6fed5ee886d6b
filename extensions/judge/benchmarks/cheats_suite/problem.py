"""out = factor · x, with the same factor for every seed: so other values can be written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"rounded_once": "the product is rounded once, to fp32"}
FENCE = {"max": 1e-5, "mean": 1e-6}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A normal vector and a factor."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(params["N"], generator=generator, device=device), "factor": 0.5}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return {"out": inputs["x"].double() * inputs["factor"]}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """One rounding, to fp32."""
    return {"out": inputs["x"] * inputs["factor"]}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """One multiplication an element; read once, written once."""
    return {"flop": params["N"], "fp32_flop": params["N"], "bytes": 8 * params["N"]}
