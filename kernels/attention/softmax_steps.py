"""Each step of the online softmax by itself: scores, weights, maxima and sums beside the output.

For comparing the softmax in registers with the one through shared memory (design 002, step 3B): variants
of both kinds write their intermediate values, and all are held to the same reference. Scores, m and l are
in base-2 units, as the kernels hold them; weights are relative to the maximum of the keys seen up to and
including their tile of 64, m and l are those after the last tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import problem as attention  # type: ignore[import-not-found]  # the suite's own: inputs and the output's reference  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = attention.KINDS
TOLERANCES = {
    "steps": (
        "scores summed up a few products at a time, each sum truncated; exp2 to 22 bits; weights rounded to fp16; "
        "the output as fused_fp16_p"
    ),
}
FENCE = {"max": 0.06, "mean": 0.02}

#: Keys in a tile of the kernels compared: how often the running maximum may move.
TILE = 64
#: Products summed up before the sum is truncated, and the bits that are kept. Tensor cores align products to
#: the largest and drop what lies below, how finely is not documented: this is meant to be the coarser one.
STEP, BITS = 4, 23
#: Relative error of the hardware's exp2 (2 units in the last place of 23 bits).
EXP2_ERROR = 2.0**-22


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """As the suite's own problem. Raises ValueError for a kind that does not exist."""
    inputs: Inputs = attention.make_inputs(params, seed, device, kind)
    return inputs


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """Every step in fp64."""
    scores = _flat(inputs, "q") @ _flat(inputs, "k").transpose(1, 2) * _scale(inputs)
    return {**attention.reference(inputs, params), **_steps(scores, inputs, 0.0)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The steps as the kernels round them.

    Raises:
        ValueError: no such class.
    """
    import torch

    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    q, k = _flat(inputs, "q"), _flat(inputs, "k")
    products = torch.zeros(q.shape[0], q.shape[1], k.shape[1], dtype=torch.float64, device=q.device)
    for a, b in zip(torch.split(q, STEP, 2), torch.split(k, STEP, 2), strict=True):
        products = _truncated(products + a @ b.transpose(1, 2))
    steps = _steps((products.float() * _scale(inputs)).double(), inputs, EXP2_ERROR)
    return {**attention.emulate("fused_fp16_p", inputs, params), **steps}


def work(params: Params) -> dict[str, float]:
    """The output's work, and the steps' bytes: scores of 4 and weights of 2, m and l of 4."""
    counts = attention.work(params)
    rows = float(params["B"] * params["H"] * params["S"])
    return {**counts, "bytes": counts["bytes"] + rows * (6 * float(params["S"]) + 8)}


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """The steps belong together: m is the largest score, and scores and m give l again."""
    answer = call(inputs)
    scores, m, total = (answer[name].double() for name in ("scores", "m", "l"))
    complaints = []
    if bool((scores.amax(-1) != m).any()):
        complaints.append("m is not the largest of the scores that were written")
    difference = float(((scores - m[..., None]).exp2().sum(-1) / total - 1).abs().max())
    if not difference <= 1e-5:
        complaints.append(f"l is not the sum over exp2(score - m): off by {difference:.2g}; expected at most 1e-05")
    return complaints


def _flat(inputs: Inputs, name: str) -> Tensor:
    return inputs[name].double().flatten(0, 1)  # type: ignore[no-any-return]


def _scale(inputs: Inputs) -> float:
    """Softmax scale times log2 e, in the fp32 that the kernels are given."""
    import torch

    return float(torch.tensor(float(inputs["scale"]) / math.log(2), dtype=torch.float32))


def _truncated(x: Tensor) -> Tensor:
    """Rounded towards zero to so many bits, carried on in fp64."""
    import torch

    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.trunc(mantissa * 2**BITS), exponent - BITS)


def _steps(scores: Tensor, inputs: Inputs, exp2_error: float) -> dict[str, Tensor]:
    import torch

    running = torch.stack([t.amax(-1) for t in torch.split(scores, TILE, 2)], -1).cummax(-1).values
    shift = running.repeat_interleave(TILE, -1)[..., : scores.shape[2]]
    m = running[..., -1]
    b, h, s = inputs["q"].shape[:3]
    return {
        "scores": scores.reshape(b, h, s, s),
        "weights": ((scores - shift).exp2() * (1 + exp2_error)).reshape(b, h, s, s),
        "m": m.reshape(b, h, s),
        "l": ((scores - m[..., None]).exp2() * (1 + exp2_error)).sum(-1).reshape(b, h, s),
    }
