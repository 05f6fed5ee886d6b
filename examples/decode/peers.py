"""What the ladder is measured against: torch's attention and FlashAttention-3.

Each takes the operator's inputs by keyword and returns the output. A backend that refuses a shape or a device raises
torch's own RuntimeError, which says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """cuDNN's fused attention."""
    return _attention("CUDNN_ATTENTION", q, k, v, scale)


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """FlashAttention-2 as torch ships it, which chooses the number of key splits."""
    return _attention("FLASH_ATTENTION", q, k, v, scale)


def fa3(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """FlashAttention-3 of the package fa3-fwd, which has only bf16; without the package the import fails.

    Grouped heads are packed, and the package chooses the number of key splits.
    """
    import fa3_fwd._C  # type: ignore[import-not-found]  # noqa: F401  registers the operator
    import torch

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out: Tensor = torch.ops.fa3_fwd.fwd(q, k, v, softmax_scale=scale, num_splits=0, pack_gqa=True)[0]
    return out.transpose(1, 2)


def _attention(backend: str, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.__members__[backend]):
        return scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
