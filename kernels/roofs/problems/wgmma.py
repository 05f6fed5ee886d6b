"""Products of matrices in shared memory: ``out = 2 Σ a_p · b_pᵀ`` over panels, in each block.

Panels are 128 bytes deep and K-major. An iteration starts from zero and goes over all panels
``PASSES`` times; ``total`` is one element of each thread's, added up once an iteration.
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
PASSES = 2  # over all panels, an iteration: the kernel's loop turn
STEP_BYTES = 32  # of depth, an instruction


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
        torch.randn(params["PANELS"], rows, params["K"], generator=generator).to(dtype).to(device)
        for rows in (params["M"], params["N"])
    )
    return {"a": a, "b": b, "iterations": params["ITERATIONS"], "clocked": 0}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """In fp64; clocks are zeros unless asked for."""
    a, b = inputs["a"].double(), inputs["b"].double()
    out = PASSES * (a @ b.transpose(1, 2)).sum(0)
    return _outputs(out, inputs["iterations"] * _watched(out, params), params)


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Instruction by instruction, from zero."""
    import torch

    depth = STEP_BYTES // inputs["a"].element_size()
    out = torch.zeros(params["M"], params["N"], dtype=torch.float64, device=inputs["a"].device)
    panels = list(zip(inputs["a"].double(), inputs["b"].double(), strict=True))
    for a, b in panels * PASSES:
        for on_a, on_b in zip(a.split(depth, 1), b.split(depth, 1), strict=True):
            out = _instruction(out, on_a, on_b, KEPT[tolerance])
    return _outputs(out, _sums(_watched(out, params), inputs["iterations"]), params)


def work(params: Params) -> dict[str, float]:
    """All panels, so many times; operands and results pass DRAM once."""
    blocks, panels, m, n, k = (float(params[x]) for x in ("BLOCKS", "PANELS", "M", "N", "K"))
    flop = 2 * blocks * panels * m * n * k * PASSES * params["ITERATIONS"]
    size = 1 if "float8" in params["DTYPE"] else 2
    return {"flop": flop, "tensor_flop": flop, "bytes": size * panels * (m + n) * k + 4 * blocks * m * n}


def _watched(out: Tensor, params: Params) -> Tensor:
    """The element that each thread adds up: the first that it holds of its warp's 16 rows."""
    import torch

    thread = torch.arange(params["THREADS"], device=out.device)
    return out[thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2]


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
