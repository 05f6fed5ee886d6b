"""Locates the wrong elements of an answer and names their pattern, which hints at the mistake in the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashcore.chips.occupancy import WARP
from flashcore.model.causes import WrongElements
from flashcore.runner.accuracy import largest_allowed
from flashcore.runner.references import Expected

#: Warps per block, at least, of a kernel in which one warp is wrong.
_WARPS = 4


def locate(outputs: Mapping[str, Any], unwritten: Mapping[str, Any], expected: Expected) -> WrongElements | None:
    """The wrong elements of the first output that has any: unwritten, not finite, or off by more than one element may
    be. ``None`` if the errors are too large only together."""
    for name, answer in expected.reference.items():
        output, limit = outputs[name], min(largest_allowed(expected.entitled[name]), expected.fence["max"])
        mask = _wrong(output, answer, limit) | unwritten.get(name, False)
        if mask.any():
            first = tuple(mask.nonzero()[0].tolist())
            values = f"{float(answer[first]):.6g}", f"{float(output[first]):.6g}"
            return WrongElements(
                name, int(mask.sum()), mask.numel(), first, *values, pattern(mask, output, answer, limit)
            )
    return None


def _wrong(output: Any, answer: Any, limit: float) -> Any:
    values = output.double()
    return ~((values - answer).abs() <= limit) & ~(values == answer)


def pattern(mask: Any, output: Any, answer: Any, limit: float) -> str:
    """The pattern of the wrong elements.

    ``transposed``, ``all``, ``last_tile`` (one after another up to the end of a dimension, in its second half),
    ``one_element``, ``one_warp`` (of each block's: groups of 32 consecutive elements), ``one_lane`` (of each warp's),
    or ``scattered``.
    """
    rows, columns = (1, 1, *answer.shape)[-2:]
    turned = output.reshape(*answer.shape[:-2], columns, rows).mT.reshape(answer.shape)
    if min(rows, columns) > 1 and not _wrong(turned, answer, limit).any():
        return "transposed"
    if mask.all():
        return "all"
    for dim, size in enumerate(mask.shape):
        hit = mask.movedim(dim, 0).reshape(size, -1).any(1)
        if 2 * hit.sum() <= size and hit[-int(hit.sum()) :].all():
            return "last_tile"
    flat = mask.flatten().nonzero()
    for name, group in (
        ("one_element", flat),
        ("one_warp", flat // WARP % _WARPS),
        ("one_lane", flat % WARP),
    ):
        if len(group.unique()) == 1:
            return name
    return "scattered"
