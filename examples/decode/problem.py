"""Attention while decoding: a few query rows, the newest, against all keys, fp16 or bf16.

``out[b, h, i] = Σ_j softmax_j(q[b, h, i] · k[b, g, j] · scale) · v[b, g, j]`` with ``g = h // (H / HKV)``, over all
keys for every row: no mask. q and out are ``[B, H, R, D]``, k and v ``[B, HKV, S, D]``, contiguous. A shape's
parameters are these dimensions and ``DTYPE``, ``float16`` or ``bfloat16``: that of the operator's tensors, stated once
more for the inputs' sake. The reference and the emulation are computed in fp64 from the same inputs. torch is imported
where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal", "scaled_logits", "one_hot_values")
EDGE_KINDS = ("ascending_maxima",)

TOLERANCES = {
    "fused_half_p": (
        "scores in fp32; weights rounded to the inputs' type for P·V; their sum and the output kept in fp32, "
        "normalised at the end, rounded to the inputs' type"
    ),
}

#: Outer fence on absolute errors: that of the attention suite.
FENCE = {"max": 0.06, "mean": 0.02}

#: Largest relative difference (Frobenius) that reordering the keys may make; rounding makes less than a third of it.
PERMUTATION_LIMIT = {"float16": 5e-3, "bfloat16": 2e-2}


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Every argument of the operator but the output.

    ``normal``: standard normal values. ``scaled_logits``: queries times 4, which makes weights peaked.
    ``one_hot_values``: row j of V is the unit vector j mod D, so the output is sums of weights themselves.
    ``ascending_maxima``: later keys fit better, by 40 over all of them, so that an online maximum moves often.
    Values come from the device's generator: drawing some hundred MB on the CPU would take seconds.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in (*KINDS, *EDGE_KINDS):
        raise ValueError(f"kind: expected one of {', '.join((*KINDS, *EDGE_KINDS))}, found {kind!r}")
    batch, heads, kv_heads, rows, seq, depth = (int(params[d]) for d in ("B", "H", "HKV", "R", "S", "D"))
    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, str(params["DTYPE"]))
    q, k, v = (
        torch.randn((batch, *size, depth), generator=generator, device=device, dtype=dtype)
        for size in ((heads, rows), (kv_heads, seq), (kv_heads, seq))
    )
    keys = torch.arange(seq, device=device)
    if kind == "scaled_logits":
        q *= 4
    elif kind == "one_hot_values":
        v[:] = torch.eye(depth, device=device, dtype=dtype)[keys % depth]
    elif kind == "ascending_maxima":
        q[..., 0] = 4
        k[..., 0] = keys * (40 * math.sqrt(depth) / 4 / seq)
    return {"q": q, "k": k, "v": v, "scale": 1 / math.sqrt(depth)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64, with no rounding anywhere."""
    return {"out": _answer(inputs, lambda weights: weights)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the tolerance class ``fused_half_p``, the only one, rounds it."""
    dtype = inputs["q"].dtype
    return {"out": _answer(inputs, lambda weights: weights.to(dtype).double()).to(dtype)}


def work(params: Params) -> dict[str, float]:
    """FLOPs, fewest DRAM bytes, and the work by resource; the only place that states them.

    Two products of 2·S·D FLOPs a query row. Elements are 2 bytes, each moved once. A score costs one exponential and,
    on the CUDA cores, one FMA and one addition.
    """
    b, h, kv, r, s, d = (float(params[x]) for x in ("B", "H", "HKV", "R", "S", "D"))
    scores = b * h * r * s
    return {
        "flop": 4 * scores * d,
        "bytes": 2 * b * (kv * s + h * r) * d * 2,
        "tensor_flop": 4 * scores * d,
        "fp32_flop": 3 * scores,
        "exp": scores,
    }


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """The order of the keys must not matter, whatever the rounding."""
    import torch

    seq = int(params["S"])
    order = torch.randperm(seq, generator=torch.Generator().manual_seed(seq)).to(inputs["k"].device)
    shuffled = {name: inputs[name][:, :, order].contiguous() for name in ("k", "v")}
    # The first answer is copied: a caller may hand out the same buffer twice.
    plain = call(inputs)["out"].double().clone()
    moved = call({**inputs, **shuffled})["out"].double()
    difference = float((plain - moved).norm() / plain.norm().clamp_min(1e-30))
    limit = PERMUTATION_LIMIT[str(params["DTYPE"])]
    if difference <= limit:  # false for NaN
        return []
    return [
        f"a permutation of the keys changed the answer by {difference:.2g} (relative Frobenius); "
        f"expected at most {limit:g}: is a key left out, masked wrongly or taken in twice?"
    ]


def _answer(inputs: Inputs, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """The output in fp64; ``rounded`` is what becomes of weights relative to their row's maximum before they are
    multiplied by V. Their sum is of weights that are not rounded."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, kv_heads = k.shape[:2]
    # The query rows that share a K/V head follow each other.
    packed = q.reshape(batch, kv_heads, -1, q.shape[-1])
    out = torch.empty(packed.shape, dtype=torch.float64, device=q.device)
    for b in range(batch):
        for head in range(kv_heads):
            scores = packed[b, head].double() @ k[b, head].double().T * float(inputs["scale"])
            weights = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
            out[b, head] = rounded(weights) @ v[b, head].double() / weights.sum(-1, keepdim=True)
    return out.reshape(q.shape)
