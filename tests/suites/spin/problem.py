"""A copy of a vector ``[N]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("counting",)
TOLERANCES = {"exact": "nothing is computed"}
FENCE = {"max": 1e-6, "mean": 1e-6}


def make_inputs(params: dict[str, Any], seed: int, device: str, kind: str = "counting") -> dict[str, Any]:
    import torch

    return {"x": torch.arange(params["N"], dtype=torch.float32, device=device)}


def reference(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    return {"out": inputs["x"].double()}


def emulate(tolerance: str, inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    return {"out": inputs["x"].clone()}


def work(params: dict[str, Any]) -> dict[str, float]:
    return {"flop": float(params["N"]), "bytes": 8.0 * params["N"]}
