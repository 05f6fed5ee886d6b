"""What cuBLAS makes of a large product, ``out = a · bᵀ``: the peer that the matrix roofs are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
TOLERANCES = {"rounded_output": "fp32 accumulation in any order; the output rounded to fp16 or bf16"}
FENCE = {"max": 8.0, "mean": 0.5}  # of sums of 8,192 products; half a unit of bf16 at 500 is 1


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same product on every machine."""
    return params


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "tensor_flop", "TFLOP/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Normal values, rounded to ``DTYPE``; from the device's own generator."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, params["DTYPE"])
    sizes = ((params["M"], params["K"]), (params["N"], params["K"]))
    a, b = (torch.randn(size, generator=generator, device=device).to(dtype) for size in sizes)
    return {"a": a, "b": b}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """In fp64."""
    return {"out": inputs["a"].double() @ inputs["b"].double().T}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The reference, rounded once."""
    import torch

    rounded = torch.float16 if params["DTYPE"] == "float16" else torch.bfloat16
    return {"out": reference(inputs, params)["out"].to(rounded)}


def work(params: Params) -> dict[str, float]:
    """Two FLOPs a product; every operand passes DRAM once."""
    m, n, k = (float(params[x]) for x in ("M", "N", "K"))
    size = 1 if "float8" in params["DTYPE"] else 2
    flop = 2 * m * n * k
    return {"flop": flop, "tensor_flop": flop, "bytes": size * (m + n) * k + 2 * m * n}
