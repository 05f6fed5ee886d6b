"""A matrix product ``out = a · b`` in fp32: ``[M, K] · [K, N]``. torch is imported where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal", "ones")
TOLERANCES = {"fp32": "products and sums in fp32, one k after another"}

#: Outer fence on absolute errors: a sum of 512 products of standard normal values is about 23.
FENCE = {"max": 1e-2, "mean": 1e-3}


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Every argument of the operator but the output. ``ones``: every answer is K.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    generator = torch.Generator().manual_seed(seed)
    sizes = {"a": (int(params["M"]), int(params["K"])), "b": (int(params["K"]), int(params["N"]))}
    made = {name: torch.randn(*size, generator=generator) for name, size in sizes.items()}
    return {name: (torch.ones_like(x) if kind == "ones" else x).to(device) for name, x in made.items()}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64."""
    return {"out": inputs["a"].double() @ inputs["b"].double()}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the class rounds it: a product and a sum for each k, one after another.

    Raises:
        ValueError: no such class.
    """
    import torch

    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    a, b = inputs["a"], inputs["b"]
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(a.shape[1]):
        total = total + a[:, k, None] * b[None, k, :]
    return {"out": total}


def work(params: Params) -> dict[str, float]:
    """A multiplication and an addition for each m, n and k; every matrix moved once."""
    m, n, k = (float(params[d]) for d in ("M", "N", "K"))
    flop = 2 * m * n * k
    return {"flop": flop, "fp32_flop": flop, "bytes": 4 * (m * k + k * n + m * n)}
