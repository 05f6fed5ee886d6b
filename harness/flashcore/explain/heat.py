"""Sums a kernel's warp samples by source line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flashcore.model.groups import grouped
from flashcore.model.record import CountedInstruction, Listing, SourcePlace

#: Loads and stores of local memory: spilled registers, or arrays with a run-time index.
_LOCAL = re.compile(r"(@!?U?P\w+\s+)?(LDL|STL)\b")
_STALL = "stall_"
#: Reasons of warps that issue or could issue, which are not stalls.
_ISSUING = ("stall_selected", "stall_not_selected")


@dataclass(frozen=True, slots=True)
class Line:
    """One source line with its machine instructions.

    Args:
        file, number, source: empty and 0 for code without a known line.
        share: its share of the kernel's samples, %.
        samples, executed: sums over its instructions.
        conflicts: shared-memory wavefronts caused by bank conflicts; ``None`` if not counted.
        local: executed loads and stores of local memory.
        stall: its most frequent stall reason and that reason's share of the line's samples, %; ``None`` if unknown.
        inlined: the share of the kernel's samples in code that was inlined at this line, %.
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
    instructions: tuple[CountedInstruction, ...]
    inlined: float = 0.0


def hottest(lines: Iterable[Line]) -> list[Line]:
    """The lines of a kernel that were sampled or executed, hottest first."""
    return sorted(
        (x for x in lines if x.samples or x.executed),
        key=lambda x: (-x.samples, -x.executed, x.file, x.number),
    )


def in_order(listing: Listing) -> list[Line]:
    """All lines in file order, including calls of inlined code; code without a known line comes last."""
    groups = grouped(((i.file, i.line, i.source), i) for i in listing.instructions)
    inlined: dict[SourcePlace, float] = {}
    for i in listing.instructions:
        for call in i.calls:
            inlined[call] = inlined.get(call, 0.0) + i.values.get("samples", 0.0)
    total = _samples(listing)
    every = _lines(listing, (dict.fromkeys(inlined, ()) | groups).items())
    every = (replace(x, inlined=100 * inlined.get((x.file, x.number, x.source), 0.0) / total) for x in every)
    return sorted(every, key=lambda x: (not x.number, x.file, x.number))


def alone(listing: Listing) -> list[Line]:
    """Each instruction as a separate line, in code order."""
    return list(_lines(listing, (((i.file, i.line, i.source), (i,)) for i in listing.instructions)))


def _lines(listing: Listing, parts: Iterable[tuple[SourcePlace, Sequence[CountedInstruction]]]) -> Iterator[Line]:
    total = _samples(listing)
    # If wavefronts were counted, an instruction without them has none.
    counted = any("wavefronts" in i.values for i in listing.instructions)
    return (_line(place, instructions, total, counted) for place, instructions in parts)


def _samples(listing: Listing) -> float:
    """The number of samples, at least 1, as the denominator of shares."""
    return sum(i.values.get("samples", 0.0) for i in listing.instructions) or 1.0


def shares(lines: Iterable[Line]) -> Mapping[str, float]:
    """The share of samples by a line's text, %, which matches lines of a variant and its parent."""
    by_text: dict[str, float] = {}
    for line in hottest(lines):
        if line.source:
            by_text[line.source] = by_text.get(line.source, 0.0) + line.share
    return by_text


def _line(place: SourcePlace, instructions: Sequence[CountedInstruction], total: float, counted: bool) -> Line:
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
