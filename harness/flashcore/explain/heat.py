"""A kernel's warp samples, added up by source line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flashcore.model.groups import grouped
from flashcore.model.record import Instruction, Listing

#: Loads and stores of a thread's local memory: spilled registers, or arrays that are indexed while it runs.
_LOCAL = re.compile(r"(@!?U?P\w+\s+)?(LDL|STL)\b")
_STALL = "stall_"
#: Reasons of warps that issue or could issue: not stalls.
_ISSUING = ("stall_selected", "stall_not_selected")


@dataclass(frozen=True, slots=True)
class Line:
    """One source line with the machine instructions made from it.

    Args:
        file, number, source: empty and 0 for code of no known line.
        share: its part of the kernel's samples, %.
        samples, executed: sums over its instructions.
        conflicts: passes through shared memory that bank conflicts cost; ``None`` if they were not counted.
        local: how often its loads and stores of local memory were executed.
        stall: the most frequent stall reason there, and its share of the line's samples, %; ``None`` if not known.
        inlined: the part of the kernel's samples in code that was inlined there, %.
    """

    file: str
    number: int
    source: str
    share: float
    samples: float
    executed: float
    conflicts: float | None
    local: float
    stall: tuple[str, float] | None
    instructions: tuple[Instruction, ...]
    inlined: float = 0.0


def hottest(lines: Iterable[Line]) -> list[Line]:
    """The lines of a kernel that were sampled or executed, the hottest first."""
    return sorted(
        (x for x in lines if x.samples or x.executed),
        key=lambda x: (-x.samples, -x.executed, x.file, x.number),
    )


def in_order(listing: Listing) -> list[Line]:
    """All lines in the order of their files, calls of inlined code too; code of no known line comes last."""
    groups = grouped(((i.file, i.line, i.source), i) for i in listing.instructions)
    inlined: dict[tuple[str, int, str], float] = {}
    for i in listing.instructions:
        for call in i.calls:
            inlined[call] = inlined.get(call, 0.0) + i.values.get("samples", 0.0)
    total = _samples(listing)
    every = _lines(listing, (dict.fromkeys(inlined, ()) | groups).items())
    every = (replace(x, inlined=100 * inlined.get((x.file, x.number, x.source), 0.0) / total) for x in every)
    return sorted(every, key=lambda x: (not x.number, x.file, x.number))


def alone(listing: Listing) -> list[Line]:
    """Each instruction as a line of its own, in the order of the code."""
    return list(_lines(listing, (((i.file, i.line, i.source), (i,)) for i in listing.instructions)))


def _lines(listing: Listing, parts: Iterable[tuple[tuple[str, int, str], Sequence[Instruction]]]) -> Iterator[Line]:
    total = _samples(listing)
    counted = any("wavefronts" in i.values for i in listing.instructions)  # then what has none made no passes
    return (_line(place, instructions, total, counted) for place, instructions in parts)


def _samples(listing: Listing) -> float:
    """Its samples, 1 at least: what shares are taken of."""
    return sum(i.values.get("samples", 0.0) for i in listing.instructions) or 1.0


def shares(lines: Iterable[Line]) -> Mapping[str, float]:
    """Text of a line → its share of the samples, %: lines of the parent are matched by text."""
    by_text: dict[str, float] = {}
    for line in hottest(lines):
        if line.source:
            by_text[line.source] = by_text.get(line.source, 0.0) + line.share
    return by_text


def _line(place: tuple[str, int, str], instructions: Sequence[Instruction], total: float, counted: bool) -> Line:
    sums = dict(instructions[0].values) if instructions else {}
    for i in instructions[1:]:
        for name, value in i.values.items():
            sums[name] = sums.get(name, 0.0) + value
    samples = sums.get("samples", 0.0)
    stalls = {n: v for n, v in sums.items() if v and n.startswith(_STALL) and n not in _ISSUING}
    worst = max(stalls, key=lambda n: stalls[n], default="")
    lost = max(sums.get("wavefronts", 0.0) - sums.get("wavefronts_ideal", 0.0), 0.0)
    return Line(
        *place,
        share=100 * samples / total,
        samples=samples,
        executed=sums.get("executed", 0.0),
        conflicts=lost if counted else None,
        local=sum((i.values.get("executed", 0.0) for i in instructions if _LOCAL.match(i.text)), 0.0),
        stall=(worst.removeprefix(_STALL), 100 * stalls[worst] / samples) if worst and samples else None,
        instructions=tuple(instructions),
    )
