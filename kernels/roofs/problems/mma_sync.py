"""Products of small matrices in the registers of each warp: ``out = (Σ a_s) · (Σ b_s)ᵀ`` in each block.

Operands are K-major and fall into four steps of the depth of one instruction; every step of a meets every
step of b. ``total`` is one element of each thread's, added up once an iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal",)
#: Bits that an addend keeps below the largest of its instruction. NVIDIA does not document them; these are
#: one less than what is reported of Hopper (fp8: 13, its "14-bit accumulators"), so that a right kernel passes.
KEPT = {"tensor": 23, "tensor_fp8": 12}
TOLERANCES = {
    "tensor": "each matrix instruction drops what lies below 2^-23 of its largest addend; fp32 accumulators",
    "tensor_fp8": "each matrix instruction drops what lies below 2^-12 of its largest addend; fp32 accumulators",
}
FENCE = {"max": 5000.0, "mean": 2000.0}  # of totals up to some 50,000; the class is what counts
STEPS = 4


def fit(params: Params, sms: int, l2_bytes: int) -> Params:
    """The same load for each SM of a machine that has ``sms`` of them (params are written for ``SMS``)."""
    return {**params, "SMS": sms, **{d: params[d] // params["SMS"] * sms for d in ("BLOCKS",)}}


def ceiling(params: Params) -> tuple[str, str]:
    """Which of :func:`work`'s amounts, over the time, is the ceiling, and its unit."""
    return "tensor_flop", "TFLOP/s"


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Normal values, rounded to ``DTYPE``."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, params["DTYPE"])
    a, b = (
        torch.randn(rows, params["K"], generator=generator).to(dtype).to(device) for rows in (params["M"], params["N"])
    )
    return {"a": a, "b": b, "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """In fp64; clocks are zeros unless asked for."""
    a, b = (inputs[x].double().unflatten(1, (STEPS, -1)).sum(1) for x in ("a", "b"))
    out = a @ b.T
    return _outputs(out, inputs["iterations"] * _watched(out, params), params)


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Instruction by instruction, from zero."""
    import torch

    a, b = (inputs[x].double().unflatten(1, (STEPS, -1)) for x in ("a", "b"))
    out = torch.zeros(params["M"], params["N"], dtype=torch.float64, device=a.device)
    for shift in range(STEPS):
        for step in range(STEPS):
            out = _instruction(out, a[:, step], b[:, (step + shift) % STEPS], KEPT[tolerance])
    return _outputs(out, _sums(_watched(out, params), inputs["iterations"]), params)


def work(params: Params) -> dict[str, float]:
    """Every step of a with every step of b, so many times; operands and results pass DRAM once."""
    blocks, m, n, k = (float(params[x]) for x in ("BLOCKS", "M", "N", "K"))
    flop = 2 * blocks * m * n * k * STEPS * params["ITERATIONS"]
    size = 1 if "float8" in params["DTYPE"] else 2
    return {"flop": flop, "tensor_flop": flop, "bytes": size * (m + n) * k + 4 * blocks * m * n}


def _watched(out: Tensor, params: Params) -> Tensor:
    """The element that each thread adds up: the first of its warp's 64 rows' that it holds."""
    import torch

    thread = torch.arange(params["THREADS"], device=out.device)
    return out[thread // 32 * 64 + thread % 32 // 4, thread % 4 * 2]


def _outputs(out: Tensor, total: Tensor, params: Params) -> dict[str, Tensor]:
    """The same in every block."""
    import torch

    blocks = params["BLOCKS"]
    clocks = torch.zeros(blocks, 4, dtype=torch.float64, device=out.device)
    return {"out": out.expand(blocks, -1, -1), "total": total.expand(blocks, -1), "clocks": clocks}


def _instruction(total: Tensor, a: Tensor, b: Tensor, kept: int) -> Tensor:
    """One step of the tensor cores: products and accumulator are aligned to the largest of them, bits below
    ``2^-kept`` of it are dropped, downwards; the sum of the rest is cut to fp32, towards zero."""
    import torch

    addends = torch.cat([total[..., None], a[:, None, :] * b[None, :, :]], -1)
    largest = addends.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    unit = torch.exp2(largest.log2().floor() - kept)
    exact = ((addends / unit).floor() * unit).sum(-1)
    nearest = exact.float()
    cut = torch.where(nearest.double().abs() > exact.abs(), nearest.nextafter(torch.zeros_like(nearest)), nearest)
    return cut.double()


def _sums(value: Tensor, count: int) -> Tensor:
    """``value`` added up ``count`` times in fp32."""
    import torch

    value = value.to(torch.float32)
    total = torch.zeros_like(value)
    for _ in range(count):
        total += value
    return total
