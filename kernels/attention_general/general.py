"""Attention forward as models use it: causal or not, query heads that share key heads, fp16 or bf16, D = 64 and 128.

``out[b, h, i] = Σ_j softmax_j(q[b, h, i] · k[b, g, j] · scale) · v[b, g, j]`` with ``g = h // (H / HKV)``, over all
keys, or with ``causal`` over ``j <= i``. q and out are ``[B, H, S, D]``, k and v ``[B, HKV, S, D]``; their rows are
contiguous, their other strides multiples of 16 bytes (a transposed view of ``[B, S, H, D]``, for one); ``lse``, where
the operator has it, is ``[B, H, S]``: the natural logarithm of the sum of exponentials of each row's scaled scores.
A shape's parameters are these dimensions, and

* ``CAUSAL`` (0 or 1), the operator's argument;
* ``DTYPE``, ``float16`` or ``bfloat16``: of every tensor but ``lse``; the operator's own, stated once more for the
  inputs' sake;
* ``LSE`` (0 or 1): whether the operator has that output;
* ``VIEWS`` (0 or 1; may be left out, as 0): inputs are transposed views of ``[B, S, H, D]``, as a model's projections
  leave them, instead of contiguous.

The reference and the emulation are computed in fp64 from the same inputs, some rows of some heads at a time. torch is
imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

#: The scale must be positive: kernels look for the largest product before they scale it.
KINDS = ("normal", "scaled_logits", "one_hot_values")
EDGE_KINDS = ("ascending_maxima",)

TOLERANCES = {
    "fused_half_p": (
        "scores in fp32; weights rounded to the inputs' type for P·V; their sum and the output kept in fp32, "
        "normalised at the end, rounded to the inputs' type"
    ),
    "fp32_p": "scores, weights and sums in fp32; only the output is rounded, to the inputs' type",
}

#: Outer fence on absolute errors, whatever the class: that of the problem `forward`.
FENCE = {"max": 0.06, "mean": 0.02}

#: What an emulated log-sum-exp is rounded to: its error is then up to half of it, and a kernel's up to 1e-4.
LSE_STEP = 1e-4
#: fp64 scores held at once (2²⁶ are 512 MiB; a handful of temporaries go with them).
_CHUNK = 1 << 26

#: Largest relative difference (Frobenius) that reordering the keys may make; rounding makes less than a third of it.
PERMUTATION_LIMIT = {"float16": 5e-3, "bfloat16": 2e-2}


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Every argument of the operator but the outputs.

    ``normal``: standard normal values. ``scaled_logits``: queries times 4, which makes weights peaked.
    ``one_hot_values``: row j of V is the unit vector j mod D, so the output is sums of weights themselves.
    ``ascending_maxima``: later keys fit better, by 40 over all of them, so that weights relative to an early maximum
    leave a half's range.
    Values come from the CPU's generator: the same on every device.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in (*KINDS, *EDGE_KINDS):
        raise ValueError(f"kind: expected one of {', '.join((*KINDS, *EDGE_KINDS))}, found {kind!r}")
    batch, heads, kv_heads, seq, depth = (int(params[d]) for d in ("B", "H", "HKV", "S", "D"))
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn((batch, n, seq, depth), generator=generator, dtype=torch.float32)
        for n in (heads, kv_heads, kv_heads)
    )
    if kind == "scaled_logits":
        q = q * 4
    elif kind == "one_hot_values":
        v = torch.eye(depth)[torch.arange(seq) % depth].expand(v.shape).contiguous()
    elif kind == "ascending_maxima":
        q[..., 0] = 4
        k[..., 0] = torch.arange(seq) * (40 * math.sqrt(depth) / 4 / seq)
    dtype = getattr(torch, str(params["DTYPE"]))
    inputs: Inputs = {name: x.to(dtype).to(device) for name, x in (("q", q), ("k", k), ("v", v))}
    if params.get("VIEWS"):
        inputs = {name: x.transpose(1, 2).contiguous().transpose(1, 2) for name, x in inputs.items()}
    return {**inputs, "scale": 1 / math.sqrt(depth), "causal": int(params["CAUSAL"])}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64, with no rounding anywhere."""
    return _answer(inputs, params, lambda weights: weights)


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the tolerance class rounds it.

    Raises:
        ValueError: no such class.
    """
    dtype = inputs["q"].dtype
    match tolerance:
        case "fused_half_p":
            found = _answer(inputs, params, lambda weights: weights.to(dtype).double())
        case "fp32_p":
            found = reference(inputs, params)
        case _:
            raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    rounded = {"out": found["out"].to(dtype)}
    if "lse" in found:
        rounded["lse"] = ((found["lse"] / LSE_STEP).round() * LSE_STEP).float()
    return rounded


def work(params: Params) -> dict[str, float]:
    """FLOPs, fewest DRAM bytes, and the work by resource; the only place that states them.

    Two products of 2·S·S·D FLOPs a head of queries. Causal counts half of them, as the field does (the diagonal's
    other half, S of S² scores, is left out: what is counted is never more than what must be done). Elements are 2
    bytes, each moved once. A score costs one exponential and, on the CUDA cores, one FMA and one addition.
    """
    b, h, kv, s, d = (float(params[x]) for x in ("B", "H", "HKV", "S", "D"))
    scores = b * h * s * s / (2 if params["CAUSAL"] else 1)
    return {
        "flop": 4 * scores * d,
        "bytes": 2 * b * (h + kv) * s * d * 2 + (4 * b * h * s if params["LSE"] else 0),
        "tensor_flop": 4 * scores * d,
        "fp32_flop": 3 * scores,
        "exp": scores,
    }


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """Properties that hold whatever the rounding.

    Without a mask the order of the keys must not matter. With one, a row must not see what comes after it: other keys
    and values from the middle on must leave the rows before as they are, bit by bit.
    """
    import torch

    seq = int(params["S"])
    # The first answer is copied: a caller may hand out the same buffer twice.
    plain = call(inputs)["out"].clone()
    generator = torch.Generator().manual_seed(seq)
    if params["CAUSAL"]:
        half = seq // 2
        later = {name: inputs[name].clone() for name in ("k", "v")}
        for x in later.values():
            x[:, :, half:] = torch.randn(x[:, :, half:].shape, generator=generator).to(x)
        changed = call({**inputs, **later})["out"][:, :, :half]
        if torch.equal(changed, plain[:, :, :half]):
            return []
        return ["other keys and values from the middle on changed rows before it: does a row see keys after its own?"]
    order = torch.randperm(seq, generator=generator).to(inputs["k"].device)
    shuffled = {name: inputs[name][:, :, order].contiguous() for name in ("k", "v")}
    moved = call({**inputs, **shuffled})["out"].double()
    difference = float((plain.double() - moved).norm() / plain.double().norm().clamp_min(1e-30))
    limit = PERMUTATION_LIMIT[str(params["DTYPE"])]
    if difference <= limit:  # false for NaN
        return []
    return [
        f"a permutation of the keys changed the answer by {difference:.2g} (relative Frobenius); "
        f"expected at most {limit:g}: is a key left out, masked wrongly or taken in twice?"
    ]


def _answer(inputs: Inputs, params: Params, rounded: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """``out`` and, where the operator has it, ``lse`` in fp64; ``rounded`` is what becomes of weights relative to
    their row's maximum before they are multiplied by V. Their sum is of weights that are not rounded."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, heads, seq, _ = q.shape
    shared = heads // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float64, device=q.device)
    keys = torch.arange(seq, device=q.device)
    for b, head, rows in _chunks(batch, heads, seq):
        seen = min(seq, rows.stop) if inputs["causal"] else seq
        scores = q[b, head, rows].double() @ k[b, head // shared, :seen].double().T * float(inputs["scale"])
        if inputs["causal"]:
            scores.masked_fill_(keys[:seen] > keys[rows, None], -math.inf)
        top = scores.amax(-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        out[b, head, rows] = rounded(weights) @ v[b, head // shared, :seen].double() / total
        lse[b, head, rows] = (top + total.log())[:, 0]
    return {"out": out, "lse": lse} if params["LSE"] else {"out": out}


def _chunks(batch: int, heads: int, seq: int) -> Iterator[tuple[int, int, slice]]:
    rows = max(1, _CHUNK // seq)
    for b in range(batch):
        for head in range(heads):
            for first in range(0, seq, rows):
                yield b, head, slice(first, min(seq, first + rows))
