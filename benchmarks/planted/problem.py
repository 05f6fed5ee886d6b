"""A vector that stays what it is, however long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("counting",)
TOLERANCES = {"exact": "every step gives back the same value"}
FENCE = {"max": 1e-6, "mean": 1e-6}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "counting") -> dict[str, Any]:
    """The numbers from 0 on, and one half."""
    import torch

    return {"x": torch.arange(params["N"], dtype=torch.float32, device=device), "half": 0.5}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The vector in fp64."""
    return {"out": inputs["x"].double()}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The vector."""
    return {"out": inputs["x"].clone()}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """The variant sets the chain's length; inputs and outputs are the same."""
    return {"bytes": 8.0 * params["N"]}
