"""Copies that take as long as they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loops import LOOPS  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from torch import Tensor


def steady(x: Tensor) -> Tensor:
    return x.clone()


def spun(x: Tensor) -> Tensor:
    for _ in range(LOOPS):
        pass
    return x.clone()
