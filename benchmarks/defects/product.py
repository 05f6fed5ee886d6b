"""c = a · b, halves in, fp32 out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"fp32_sum": "products of halves summed in fp32"}
FENCE = {"max": 1e-2, "mean": 1e-3}


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """Normal matrices of ``M`` × ``K`` and ``K`` × ``N`` halves."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    sizes = {"a": (params["M"], params["K"]), "b": (params["K"], params["N"])}
    return {n: torch.randn(*s, generator=generator, device=device).half() for n, s in sizes.items()}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return {"c": inputs["a"].double() @ inputs["b"].double()}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer summed in float32, one product after another."""
    import torch

    a, b = inputs["a"].float(), inputs["b"].float()
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(a.shape[1]):
        total.addr_(a[:, k], b[k])
    return {"c": total}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """2 M N K, for the tensor cores; each matrix moved once."""
    m, n, k = (params[d] for d in "MNK")
    return {"flop": 2 * m * n * k, "tensor_flop": 2 * m * n * k, "bytes": 2 * (m * k + k * n) + 4 * m * n}
