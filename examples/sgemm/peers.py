"""torch's own product, in full fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cublas(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    """``alpha a b + beta c``, written into c; torch allows TF32 only where it is asked for."""
    return c.addmm_(a, b, alpha=alpha, beta=beta)
