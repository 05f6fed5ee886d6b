"""out = 2 · x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"rounded_once": "the product is exact"}
FENCE = {"max": 1e-5, "mean": 1e-6}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A normal vector."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(params["N"], generator=generator, device=device), "form": params["form"]}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return {"out": inputs["x"].double() * 2}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The product is exact."""
    return {"out": inputs["x"] * 2}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """One multiplication an element; read once, written once."""
    return {"flop": params["N"], "fp32_flop": params["N"], "bytes": 8 * params["N"]}
