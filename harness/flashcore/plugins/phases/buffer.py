"""What a marked kernel wrote, as ``phase_recorder.cuh`` lays it out."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flashcore.errors import FlashcoreError

WARPS = 32  # of a block
_WARP = struct.Struct("<5Q4I8x")
_EVENT = struct.Struct("<2Q")
_CHARACTERS = "\0abcdefghijklmnopqrstuvwxyz0123456789_"  # the digits of a name


@dataclass(frozen=True, slots=True)
class Warp:
    """A recorded warp.

    Args:
        block: its number in the grid.
        begin, end: of its role: the SM's clock (cycles) and the chip's (ns) at once.
        events: when each of its phases began, by the SM's clock, and the phase.
        dropped: later phases that had no place.
    """

    block: int
    sm: int
    number: int
    role: str
    begin: tuple[int, int]
    end: tuple[int, int]
    events: tuple[tuple[int, str], ...]
    dropped: int


def size(blocks: int, events: int) -> int:
    """The bytes of a buffer for so many blocks, and phases per warp."""
    return blocks * WARPS * (_WARP.size + events * _EVENT.size)


def parse(data: bytes, events: int) -> tuple[Warp, ...]:
    """The warps that recorded one call.

    Raises:
        FlashcoreError: a warp entered two roles, or two marked kernels wrote the same place.
    """
    warps = []
    step = size(1, events) // WARPS
    for index, offset in enumerate(range(0, len(data), step)):
        role, *clocks, block, sm, count, scopes = _WARP.unpack_from(data, offset)
        if not role:
            continue
        number = index % WARPS
        if scopes != 1:
            raise FlashcoreError(
                f"warp {number} of block {block}: expected one FLASHCORE_ROLE that ends, found {scopes}\n"
                "  hint: a warp has one role, in one kernel of the variant"
            )
        stored = min(count, events)
        place = offset + _WARP.size
        named = _EVENT.iter_unpack(data[place : place + stored * _EVENT.size])
        phases = tuple((clock, name_of(code)) for clock, code in named)
        begin, end = (clocks[0], clocks[1]), (clocks[2], clocks[3])
        warps.append(Warp(block, sm, number, name_of(role), begin, end, phases, count - stored))
    return tuple(warps)


def name_of(code: int) -> str:
    """The name that a number stands for."""
    text = ""
    while code:
        code, digit = divmod(code, len(_CHARACTERS))
        text = _CHARACTERS[digit] + text
    return text
