"""Where the warps of a kernel are, line by line: the samples of its listing, added up by source line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashcore.model.record import Instruction, Listing

#: Loads and stores of a thread's local memory: spilled registers, or arrays that are indexed while it runs.
_LOCAL = re.compile(r"(@!?U?P\w+\s+)?(LDL|STL)\b")
_HELD = "stall_"
#: A warp that issues, or could, is not stalled.
_NOT_HELD = ("stall_selected", "stall_not_selected")


@dataclass(frozen=True, slots=True)
class Line:
    """One source line with the machine instructions made from it.

    Args:
        file, number, source: empty and 0 for code of no known line.
        share: its part of the kernel's samples, %.
        samples, executed: added up over its instructions.
        conflicts: passes through shared memory that bank conflicts cost; ``None`` if they were not counted.
        local: how often its loads and stores of local memory were executed.
        held: the most frequent stall reason there, and its share of the line's samples, %; ``None`` if not known.
    """

    file: str
    number: int
    source: str
    share: float
    samples: float
    executed: float
    conflicts: float | None
    local: float
    held: tuple[str, float] | None
    instructions: tuple[Instruction, ...]


def lines(listing: Listing) -> list[Line]:
    """The lines of a kernel, the hottest first; without lines where nothing was sampled, executed or lost to bank
    conflicts."""
    groups: dict[tuple[str, int, str], list[Instruction]] = {}
    for i in listing.instructions:
        groups.setdefault((i.file, i.line, i.source), []).append(i)
    total = sum(i.values.get("samples", 0.0) for i in listing.instructions) or 1.0
    counted = any("wavefronts" in i.values for i in listing.instructions)  # then what has none made no passes
    found = [_line(place, own, total, counted) for place, own in groups.items()]
    return sorted(
        (x for x in found if x.samples or x.executed), key=lambda x: (-x.samples, -x.executed, x.file, x.number)
    )


def shares(listing: Listing | None) -> Mapping[str, float]:
    """Text of a line → its share of the samples, %: lines of the parent are matched by text."""
    found: dict[str, float] = {}
    for line in lines(listing) if listing is not None else ():
        if line.source:
            found[line.source] = found.get(line.source, 0.0) + line.share
    return found


def _line(place: tuple[str, int, str], own: Sequence[Instruction], total: float, counted: bool) -> Line:
    sums: dict[str, float] = {}
    local = 0.0
    for i in own:
        for name, value in i.values.items():
            sums[name] = sums.get(name, 0.0) + value
        if _LOCAL.match(i.text):
            local += i.values.get("executed", 0.0)
    samples = sums.get("samples", 0.0)
    held = {n: v for n, v in sums.items() if n.startswith(_HELD) and n not in _NOT_HELD and v}
    worst = max(held, key=lambda n: held[n], default="")
    lost = max(sums.get("wavefronts", 0.0) - sums.get("wavefronts_ideal", 0.0), 0.0)
    return Line(
        *place,
        share=100 * samples / total,
        samples=samples,
        executed=sums.get("executed", 0.0),
        conflicts=lost if counted else None,
        local=local,
        held=(worst.removeprefix(_HELD), 100 * held[worst] / samples) if worst and samples else None,
        instructions=tuple(own),
    )
