"""``c = a · b`` of half-precision matrices. torch is imported where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]

KINDS = ("normal", "one_sign")
TOLERANCES = {"fp32_sum": "exact products of halves summed in fp32, in any order; one rounding to half"}

#: Outer fence on absolute errors, whatever the class: of `one_sign` answers up to K / 4 = 512 are spaced by 0.5.
FENCE = {"max": 1.0, "mean": 0.25}


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """``a`` and ``b``. ``normal``: standard normal values. ``one_sign``: between 0 and 1, so that sums grow.

    Raises:
        ValueError: no such kind.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn if kind == "normal" else torch.rand
    m, n, k = (int(params[d]) for d in "MNK")
    a, b = (draw(*sizes, generator=generator).half() for sizes in ((m, k), (k, n)))
    return {"a": a.to(device), "b": b.to(device)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer in fp64."""
    return {"c": inputs["a"].double() @ inputs["b"].double()}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The answer as a kernel of the tolerance class rounds it: partial sums of 16 products each are taken in fp32, one
    after another, as the tensor cores' are.

    Raises:
        ValueError: no such class.
    """
    import torch

    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    a, b = inputs["a"].double(), inputs["b"].double()
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    for first in range(0, a.shape[1], 16):
        total = (total.double() + a[:, first : first + 16] @ b[first : first + 16]).float()
    return {"c": total.half()}


def work(params: Params) -> dict[str, float]:
    """A product and a sum for each element of the inner dimension; every matrix moved once, 2 bytes an element."""
    m, n, k = (float(params[d]) for d in "MNK")
    flop = 2 * m * n * k
    return {"flop": flop, "bytes": 2 * (m * k + k * n + m * n), "tensor_flop": flop}
