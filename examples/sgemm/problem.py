"""C = alpha A B + beta C in fp32. torch is imported where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("normal",)
TOLERANCES = {"fp32": "products summed up in fp32, one after another; alpha, beta and C in fp32 at the end"}
FENCE = {"max": 1e-2, "mean": 1e-3}  # of values of about 20, at K = 4,096


def make_inputs(params: dict[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """Standard normal matrices, C as it is before a call, and the shape's alpha and beta."""
    import torch

    m, n, k = (int(params[name]) for name in "MNK")
    made = torch.Generator().manual_seed(seed)
    a, b, c = (torch.randn(rows, columns, generator=made).to(device) for rows, columns in ((m, k), (k, n), (m, n)))
    return {"a": a, "b": b, "c": c, "alpha": float(params["alpha"]), "beta": float(params["beta"])}


def reference(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    """The answer in fp64."""
    a, b, c = (inputs[name].double() for name in "abc")
    return {"c": inputs["alpha"] * (a @ b) + inputs["beta"] * c}


def emulate(tolerance: str, inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    """The answer as a kernel rounds it that adds one product after another to an fp32 sum."""
    import torch

    a, b = inputs["a"], inputs["b"]
    total = torch.zeros_like(inputs["c"])
    for k in range(a.shape[1]):
        total.addr_(a[:, k], b[k])
    return {"c": inputs["alpha"] * total + inputs["beta"] * inputs["c"]}


def work(params: dict[str, Any]) -> dict[str, float]:
    """2 M N K; each matrix read once, C written too."""
    m, n, k = (float(params[name]) for name in "MNK")
    return {"flop": 2 * m * n * k, "fp32_flop": 2 * m * n * k, "bytes": 4 * (m * k + k * n + 2 * m * n)}
