"""Makes the bytes that a marked kernel leaves."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from flashcore.features.phases.timeline import WARPS

DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789_"
EVENTS = 4  # places of each warp


class Entry(NamedTuple):
    """A warp: when its role begins and ends, and its phases, by the SM's clock."""

    warp: int
    role: str
    begin: int
    end: int
    phases: Sequence[tuple[int, str]]
    block: int = 0
    slot: int = 0  # the recorded blocks are counted
    sm: int = 0
    scopes: int = 1


def code(name: str) -> int:
    """The number of a name: the first character is the most significant digit to the base 38."""
    value = 0
    for character in name:
        value = 38 * value + DIGITS.index(character) + 1
    return value


def dump(*entries: Entry, blocks: int = 2, ghz: float = 2.0, start_ns: int = 1_700_000_000_000_000_000) -> bytes:
    """The buffer. Each SM's clock starts at another number; the chip's starts at ``start_ns`` and has steps of 32."""
    warp_bytes = 64 + 16 * EVENTS
    data = bytearray(blocks * WARPS * warp_bytes)
    for e in entries:
        base = (e.sm + 1) * 10**12
        stamps = [x for cycles in (e.begin, e.end) for x in (base + cycles, start_ns + int(cycles / ghz) // 32 * 32)]
        head = struct.pack("<5Q4IQ", code(e.role), *stamps, e.block, e.sm, len(e.phases), e.scopes, 0)
        stored = b"".join(struct.pack("<2Q", base + cycles, code(name)) for cycles, name in e.phases[:EVENTS])
        at = (e.slot * WARPS + e.warp) * warp_bytes
        data[at : at + len(head + stored)] = head + stored
    return bytes(data)


#: A producer, and a consumer that starts 6400 cycles later; on another SM a producer that starts then too.
PIPELINE = (
    Entry(0, "producer", 0, 64_000, [(0, "load"), (32_000, "wait")]),
    Entry(1, "consumer", 6400, 64_000, [(16_000, "scores"), (48_000, "output")]),
    Entry(0, "producer", 6400, 70_400, [(6400, "load"), (38_400, "wait")], block=9, slot=1, sm=3),
)
