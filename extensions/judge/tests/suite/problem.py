"""Copies bytes, which the stand-in of CUDA's driver can do."""

from __future__ import annotations

import os
from typing import Any

KINDS = ("random", "ones")
TOLERANCES = {"exact": "bytes are copied"}
FENCE = {"max": 0.0, "mean": 0.0}


def make_inputs(params: dict[str, Any], seed: int, device: str, kind: str = "random") -> dict[str, Any]:
    import torch

    if "COPIES_FAIL" in os.environ:
        raise RuntimeError("COPIES_FAIL")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (params["N"],), generator=generator, dtype=torch.uint8)
    # A number that the kind of input decides, as the sign of a scale may be.
    return {"x": (torch.ones_like(x) if kind == "ones" else x).to(device), "sign": -1 if kind == "ones" else 1}


def reference(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    return {"y": inputs["x"].double()}


def emulate(tolerance: str, inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    return {"y": inputs["x"].double()}


def work(params: dict[str, Any]) -> dict[str, float]:
    return {"bytes": 2.0 * params["N"], "flop": 0.0}


def copied(x: Any) -> Any:
    return x.clone()
