"""c = a · b, halves in, fp32 out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"tensor_sum": "products of halves summed in fp32, which tensor cores round to zero"}
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
    """The answer of tensor cores: 16 products summed exactly and added to the fp32 sum, which is rounded to zero."""
    import torch

    a, b = inputs["a"].double(), inputs["b"].double()
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(0, a.shape[1], 16):
        exact = total.double() + a[:, k : k + 16] @ b[k : k + 16]
        nearest = exact.float()
        total = torch.where(nearest.abs() > exact.abs(), nearest.nextafter(torch.zeros_like(nearest)), nearest)
    return {"c": total}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """2 M N K, for the tensor cores; each matrix moved once."""
    m, n, k = (params[d] for d in "MNK")
    return {"flop": 2 * m * n * k, "tensor_flop": 2 * m * n * k, "bytes": 2 * (m * k + k * n) + 4 * m * n}
