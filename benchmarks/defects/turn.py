"""out = the transpose of x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"exact": "elements are moved"}
FENCE = {"max": 0.0, "mean": 0.0}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A normal matrix of ``M`` rows and ``K`` columns."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(params["M"], params["K"], generator=generator, device=device)}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The transpose."""
    return {"out": inputs["x"].double().t().contiguous()}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The transpose."""
    return {"out": inputs["x"].t().contiguous()}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """Each element read and written once. Nothing is computed; a rate needs a count, so elements stand for FLOPs."""
    elements = params["M"] * params["K"]
    return {"flop": elements, "fp32_flop": elements, "bytes": 8 * elements}
