"""Attention forward, non-causal: ``out = softmax(q · kᵀ · scale) · v`` for each head.

Tensors are fp16, contiguous ``[B, H, S, D]``. The reference and every emulation are computed in fp64
from the same fp16 inputs; an emulation rounds where a kernel of its tolerance class rounds, so its
error against the reference is what such a kernel is entitled to. torch is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal", "scaled_logits", "one_hot_values", "identical_keys")
#: At the edges of what the kernels promise, for them alone: torch promises nothing of a scale that is not positive.
EDGE_KINDS = ("negative_scale", "zero_scale", "large_values", "ascending_maxima")

TOLERANCES = {
    "fp32_p": "scores, weights and sums in fp32; only the output is rounded, to fp16",
    "fused_fp16_p": (
        "scores in fp32; weights relative to the running maximum rounded to fp16 for P·V; "
        "their sum and the output kept in fp32, normalised at the end, rounded to fp16"
    ),
    "unfused_fp16_sp": "scaled scores and normalised weights rounded to fp16, and so is the output",
    "fp16_accum": "as fused_fp16_p, but the output is accumulated in fp16: rounded after every 16 keys",
    "quantized_u8": "K and V as 8-bit integers with a scale for each row; otherwise as fused_fp16_p",
    "quantized_fp8": "K and V as fp8 e4m3 with a scale for each row; otherwise as fused_fp16_p",
}

#: Outer fence on absolute errors, whatever the class (FlashCore designs 000 and 003).
FENCE = {"max": 0.06, "mean": 0.02}

#: Keys in a tile of the emulated online softmax: how often the running maximum may move.
TILE = 32
#: Keys that one matrix instruction takes in before an fp16 accumulator is rounded.
STEP = 16
#: fp64 scores held at once by the reference (2²⁴ are 128 MiB; a handful of temporaries go with them).
_CHUNK = 1 << 24

#: Largest relative difference (Frobenius) that reordering the keys may make. Rounding makes less than
#: a third of it; one key of 4,096 lost, or one padded key taken in, makes more.
PERMUTATION_LIMIT = 5e-3


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """Every argument of the operator but the output.

    ``normal``: standard normal values. ``scaled_logits``: queries times 4, which makes weights peaked.
    ``one_hot_values``: row j of V is the unit vector j mod D, so the output is sums of weights themselves.
    ``identical_keys``: all keys of a head alike, so every weight is 1/S and the output is the mean of V.
    ``negative_scale`` and ``zero_scale``: as they say. ``large_values``: V times 16 (an output in fp16 has units of
    1/32 there, and the fence is absolute). ``ascending_maxima``: later keys fit better, by 10 over all of them, so
    that an online maximum moves again and again.
    Values come from the CPU's generator: the same on every device.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in (*KINDS, *EDGE_KINDS):
        raise ValueError(f"kind: expected one of {', '.join((*KINDS, *EDGE_KINDS))}, found {kind!r}")
    size = [int(params[d]) for d in ("B", "H", "S", "D")]
    seq, depth = size[2], size[3]
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(size, generator=generator, dtype=torch.float32) for _ in range(3))
    if kind == "scaled_logits":
        q = q * 4
    elif kind == "one_hot_values":
        v = torch.eye(depth)[torch.arange(seq) % depth].expand(size).contiguous()
    elif kind == "identical_keys":
        k = k[:, :, :1].expand(size).contiguous()
    elif kind == "large_values":
        v = v * 16
    elif kind == "ascending_maxima":
        q[..., 0] = 4
        k[..., 0] = torch.arange(seq) * (10 * math.sqrt(depth) / 4 / seq)
    inputs: Inputs = {name: x.to(torch.float16).to(device) for name, x in (("q", q), ("k", k), ("v", v))}
    sign = {"negative_scale": -1, "zero_scale": 0}.get(kind, 1)
    return {**inputs, "scale": sign / math.sqrt(depth)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64, with no rounding anywhere."""
    return {"out": _by_rows(inputs, lambda scores, v: scores.softmax(-1) @ v)}


#: What a code of one is worth to the kernels: a power of two that keeps weights times scales normal halves.
CODE_UNIT = {"quantized_u8": 64.0, "quantized_fp8": 256.0}
#: The code that stands for the largest element of a row.
LARGEST_CODE = {"quantized_u8": 127.0, "quantized_fp8": 448.0}


def basis(tolerance: str, inputs: Inputs, params: Params) -> Inputs:
    """What a variant of this class computes on: K and V dequantised, or the inputs as they are."""
    dequantized = {"quantized_u8": dequantized_u8, "quantized_fp8": dequantized_fp8}.get(tolerance)
    if dequantized is None:
        return inputs
    return {**inputs, "k": dequantized(inputs["k"]), "v": dequantized(inputs["v"])}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the tolerance class rounds it, in fp16.

    Raises:
        ValueError: no such class.
    """
    import torch

    match tolerance:
        case "fp32_p":
            out = reference(inputs, params)["out"]
        case "fused_fp16_p":
            out = _online(inputs)
        case "unfused_fp16_sp":
            out = _by_rows(inputs, lambda scores, v: _half(_half(scores).softmax(-1)) @ v)
        case "fp16_accum":
            out = _online(inputs, accumulate=_half)
        case "quantized_u8" | "quantized_fp8":
            out = _online(
                basis(tolerance, inputs, params),
                _row_scale(inputs["v"], LARGEST_CODE[tolerance]) * CODE_UNIT[tolerance],
            )
        case _:
            raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    return {"out": out.to(torch.float16)}


def work(params: Params) -> dict[str, float]:
    """FLOPs, fewest DRAM bytes, and the work by resource; the only place that states them.

    Two products of 2·S·S·D FLOPs a head; four tensors of 2 bytes an element, each moved once. A score
    costs one exponential and, on the CUDA cores, one FMA (scale, shift) and one addition (the sum).
    """
    b, h, s, d = (float(params[x]) for x in ("B", "H", "S", "D"))
    scores = b * h * s * s
    return {
        "flop": 4 * scores * d,
        "bytes": 4 * b * h * s * d * 2,
        "tensor_flop": 4 * scores * d,
        "fp32_flop": 3 * scores,
        "exp": scores,
    }


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """Properties that hold whatever the rounding: the order of the keys must not matter."""
    import torch

    seq = int(params["S"])
    order = torch.randperm(seq, generator=torch.Generator().manual_seed(seq)).to(inputs["k"].device)
    shuffled = {
        **inputs,
        "k": inputs["k"][:, :, order].contiguous(),
        "v": inputs["v"][:, :, order].contiguous(),
    }
    # The first answer is copied: a caller may hand out the same buffer twice.
    plain = call(inputs)["out"].double().clone()
    moved = call(shuffled)["out"].double()
    difference = float((plain - moved).norm() / plain.norm().clamp_min(1e-30))
    if difference <= PERMUTATION_LIMIT:  # false for NaN
        return []
    return [
        f"a permutation of the keys changed the answer by {difference:.2g} (relative Frobenius); "
        f"expected at most {PERMUTATION_LIMIT:g}: is a key left out, masked wrongly or taken in twice?"
    ]


def dequantized_u8(x: Tensor) -> Tensor:
    """What 8-bit codes ``round(x / s) + 128`` stand for, ``s = max |row| / 127`` in fp32; in fp64."""
    import torch

    scale = _row_scale(x, LARGEST_CODE["quantized_u8"])
    codes = (x.float() / scale).round().clamp(-127, 127).to(torch.int16) + 128
    return (codes.double() - 128) * scale.double()


def dequantized_fp8(x: Tensor) -> Tensor:
    """What fp8 e4m3 codes of ``x / s`` stand for, ``s = max |row| / 448`` in fp32; in fp64."""
    import torch

    scale = _row_scale(x, LARGEST_CODE["quantized_fp8"])
    codes = (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.double() * scale.double()


def _row_scale(x: Tensor, largest_code: float) -> Tensor:
    import torch

    largest = x.float().abs().amax(-1, keepdim=True)
    # By a tensor: torch divides by a Python number through its reciprocal on CUDA, which may round otherwise.
    scale = largest / torch.full_like(largest, largest_code)
    return scale.masked_fill(scale == 0, 1.0)  # a row of zeros: any scale will do


def _half(x: Tensor) -> Tensor:
    """Rounded to fp16, carried on in fp64."""
    return x.half().double()


def _heads(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in fp64 as ``[B·H, S, D]``; the softmax scale is in q."""
    q, k, v = (inputs[name].double().flatten(0, 1) for name in ("q", "k", "v"))
    return q * float(inputs["scale"]), k, v


def _by_rows(inputs: Inputs, answer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``answer(scores, v)`` over whole rows of scores, a bounded number of them at once."""
    import torch

    q, k, v = _heads(inputs)
    out = torch.empty_like(q)
    for head, rows in _chunks(q.shape[0], q.shape[1]):
        out[head, rows] = answer(q[head, rows] @ k[head].T, v[head])
    return out.reshape(inputs["q"].shape)


def _chunks(heads: int, seq: int) -> Iterator[tuple[int, slice]]:
    rows = max(1, _CHUNK // seq)
    for head in range(heads):
        for first in range(0, seq, rows):
            yield head, slice(first, first + rows)


def _online(
    inputs: Inputs, value_scale: Tensor | None = None, accumulate: Callable[[Tensor], Tensor] = lambda x: x
) -> Tensor:
    """The fused kernels' walk over the keys: weights relative to the running maximum, rounded to fp16.

    ``value_scale`` (one for each row of V) is folded into the weights before they are rounded, as kernels do
    that multiply by V's 8-bit codes. ``accumulate`` rounds the output wherever it is stored: after it is
    rescaled, and after each step.
    """
    import torch

    q, k, v = _heads(inputs)
    scale = torch.ones_like(v[..., :1]) if value_scale is None else value_scale.double().reshape(*v.shape[:2], 1)
    m = torch.full_like(q[..., :1], -math.inf)
    total = torch.zeros_like(m)
    out = torch.zeros_like(q)
    tiles = zip(torch.split(k, TILE, 1), torch.split(v / scale, TILE, 1), torch.split(scale, TILE, 1), strict=True)
    for keys, values, unit in tiles:
        scores = q @ keys.transpose(1, 2)
        raised = torch.maximum(m, scores.amax(-1, keepdim=True))
        factor = (m - raised).exp()  # raised is finite: a tile holds at least one key
        weights = (scores - raised).exp()
        total = total * factor + weights.sum(-1, keepdim=True)
        out = accumulate(out * factor)
        rounded = _half(weights * unit.transpose(1, 2))
        for p, x in zip(torch.split(rounded, STEP, 2), torch.split(values, STEP, 1), strict=True):
            out = accumulate(out + p @ x)
        m = raised
    return (out / total).reshape(inputs["q"].shape)
