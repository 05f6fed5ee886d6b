"""torch's own attention through each backend it offers: what the ladder is measured against.

Each takes the operator's inputs by keyword and returns the output. A backend that refuses a shape or a
device raises torch's own RuntimeError, which says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """cuDNN's fused attention."""
    return _attention("CUDNN_ATTENTION", q, k, v, scale)


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """FlashAttention-2 as torch ships it; splits along the keys where the grid would be small."""
    return _attention("FLASH_ATTENTION", q, k, v, scale)


def efficient(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The memory-efficient kernel (CUTLASS)."""
    return _attention("EFFICIENT_ATTENTION", q, k, v, scale)


def math(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Unfused: matrix products and a softmax as separate operators."""
    return _attention("MATH", q, k, v, scale)


def _attention(backend: str, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.__members__[backend]):
        return scaled_dot_product_attention(q, k, v, scale=scale)
