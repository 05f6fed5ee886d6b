"""FlashAttention-3 of the package fa3-fwd, for the problem of `general.py`; without the package the import fails.

The package has only bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """The package's operator, which takes ``[B, S, H, D]`` with any strides and chooses the number of key splits."""
    import fa3_fwd._C  # type: ignore[import-not-found]  # noqa: F401  registers the operator
    import torch

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out: Tensor = torch.ops.fa3_fwd.fwd(q, k, v, softmax_scale=scale, is_causal=bool(causal))[0]
    return out.transpose(1, 2)
