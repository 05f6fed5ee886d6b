"""torch's own softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def torch_softmax(x: Tensor) -> Tensor:
    """``torch.softmax`` over the last dimension."""
    import torch

    return torch.softmax(x, -1)
