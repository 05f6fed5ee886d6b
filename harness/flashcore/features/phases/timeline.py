"""What a marked kernel wrote, as ``phase_recorder.cuh`` lays it out, in ns on one axis."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError

BLOCKS, WARPS = 4, 32  # of a grid that are recorded; of a block
UNMARKED = "(unmarked)"  # from the begin of a role to its first phase
_CHARACTERS = "\0abcdefghijklmnopqrstuvwxyz0123456789_"  # the digits of a name


class Timeline(NamedTuple):
    """The recorded phases of a call.

    Args:
        spans: a frame: block, sm, warp, role and phase, from start to end in ns; by start, the first at 0.
        dropped: later phases that had no place in the buffer.
        ghz: cycles per ns of the SMs, from both clocks of all recorded warps.
    """

    spans: Any
    dropped: int
    ghz: float


def layout(events: int) -> struct.Struct:
    """The place of a warp in the buffer, with so many phases."""
    return struct.Struct(f"<5Q4I8x{2 * events}Q")


def name_of(code: int) -> str:
    """The name that a number stands for."""
    return "".join(_CHARACTERS[code // 38**i % 38] for i in reversed(range(12))).lstrip("\0")


def timeline(data: bytes, events: int) -> Timeline:
    """Reads a buffer with so many phases of each warp.

    Each SM counts cycles from another start. Where its first recorded warp begins, both clocks are read at once: n ns
    and c cycles. Cycle x of that SM is at n + (x - c) / ghz. A phase whose end was dropped is left out.

    Raises:
        FlashcoreError: nothing was recorded, the clocks did not advance, a warp entered two roles, or two marked
            kernels wrote the same place.
    """
    import pandas

    cycles = ns = dropped = 0
    starts: dict[int, tuple[int, int]] = {}
    rows = []
    for index, fields in enumerate(layout(events).iter_unpack(data)):
        role, begin, begin_ns, end, end_ns, block, sm, count, scopes, *words = fields
        if not role:
            continue
        if scopes != 1:
            raise FlashcoreError(
                f"warp {index % WARPS} of block {block}: expected one FLASHCORE_ROLE that ends, found {scopes}\n"
                "  hint: a warp has one role, in one kernel of the variant"
            )
        c, n = starts.setdefault(sm, (begin, begin_ns))
        marks = [begin, 0, *words[: 2 * count], *[end] * (count <= events)]  # clock, name, clock, name, ... clock
        for start, code, stop in zip(marks[::2], marks[1::2], marks[2::2], strict=False):
            rows.append((block, sm, index % WARPS, name_of(role), name_of(code) or UNMARKED, n, start - c, stop - c))
        cycles += end - begin
        ns += end_ns - begin_ns
        dropped += max(0, count - events)
    if not cycles * ns:
        raise FlashcoreError(
            f"expected recorded warps and clocks that advance, found {cycles} cycles in {ns} ns on {len(starts)} SMs\n"
            "  hint: lane 0 of a warp enters FLASHCORE_ROLE, at this shape too"
        )
    spans = pandas.DataFrame(rows, columns=["block", "sm", "warp", "role", "phase", "n", "start", "end"])
    spans.n -= spans.n.min()  # as integers: the chip's clock exceeds what a double holds exactly
    for edge in ("start", "end"):
        spans[edge] = spans.n + spans[edge] * ns / cycles
    spans[["start", "end"]] -= spans.start.min()
    return Timeline(spans.sort_values("start", kind="stable"), dropped, cycles / ns)
