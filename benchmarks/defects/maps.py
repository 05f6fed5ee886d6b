"""out = f(f(… x)), with f(y) = y / 2 + 1, ``R`` times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"fp32": "each step rounded to fp32; later steps halve the error of the earlier ones"}
FENCE = {"max": 1e-5, "mean": 1e-6}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A normal vector of ``N`` elements, and the number of steps."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(params["N"], generator=generator, device=device), "rounds": int(params["R"])}


def _mapped(y: Any, rounds: int) -> dict[str, Any]:
    for _ in range(min(rounds, 64)):  # later steps change nothing: y is 2
        y = y * 0.5 + 1
    return {"out": y}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return _mapped(inputs["x"].double(), inputs["rounds"])


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float32."""
    return _mapped(inputs["x"], inputs["rounds"])


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """A multiplication and an addition per step; each element read and written once."""
    flop = 2 * params["N"] * params["R"]
    return {"flop": flop, "fp32_flop": flop, "bytes": 8 * params["N"]}
