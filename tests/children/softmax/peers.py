"""Peers of the row softmax: they return their answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def library(x: Tensor, scale: float) -> Tensor:
    return x.softmax(-1).half()


def rough(x: Tensor, scale: float) -> Tensor:
    """Within the fence, but not within the class."""
    return (x.softmax(-1) * 1.02).half()


def overflows(x: Tensor, scale: float) -> Tensor:
    """Overflows where no library promises anything."""
    return (x.exp() / x.exp().sum(-1, keepdim=True)).half()


def wrong(x: Tensor, scale: float) -> Tensor:
    return x.softmax(0).half() + 0.1


def misshapen(x: Tensor, scale: float) -> Tensor:
    return x.softmax(-1).half().flatten()
