"""torch's own attention through the backends it offers, for the problem of `general.py`.

Each takes the operator's inputs by keyword and returns the output. A backend that refuses a shape or a device raises
torch's own RuntimeError, which says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """cuDNN's fused attention."""
    return _attention("CUDNN_ATTENTION", q, k, v, scale, causal)


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """FlashAttention-2 as torch ships it; splits along the keys where the grid would be small."""
    return _attention("FLASH_ATTENTION", q, k, v, scale, causal)


def efficient(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """The memory-efficient kernel (CUTLASS); it takes no grouped heads."""
    return _attention("EFFICIENT_ATTENTION", q, k, v, scale, causal)


def math(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """Unfused: matrix products and a softmax as separate operators."""
    return _attention("MATH", q, k, v, scale, causal)


def _attention(backend: str, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel(SDPBackend.__members__[backend]):
        return scaled_dot_product_attention(q, k, v, scale=scale, is_causal=bool(causal), enable_gqa=grouped)
