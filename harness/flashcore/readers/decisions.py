"""Judges budgets on compiler decisions by machine code with line information.

Line tables do not always tell apart the calls of one inlined function, and some instructions have the line of an
earlier one. So the instructions of a function that is inlined into a piece are those of all its calls in the kernel,
and in a piece nothing weaker may stand beside what must be there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import mode

from flashcore.model.causes import CalledSeparately, Cause, Decided, NoLines, NoPiece, NotOnArch
from flashcore.model.decisions import meanings
from flashcore.model.suite import Decision
from flashcore.readers.cubin import names_source
from flashcore.readers.phases import Sources
from flashcore.readers.pieces import pieces
from flashcore.readers.sass import Instruction, SourceLine
from flashcore.readers.spills import closing_branches


def decided(
    decision: Decision,
    code: Sequence[Instruction],
    arch: str,
    sources: Sources,
    separate: Sequence[str] = (),
) -> tuple[int | None, Cause | Decided]:
    """How many of a decision's names do not hold in a kernel and the code there, or why that is not known.

    Args:
        separate: the functions of its cubin that are compiled separately.
    """
    loops = closing_branches(code)
    listing = "\n".join(f"{i.opcode} {i.operands}{' loop' * (i in loops)}" for i in code)
    piece, scope = set[SourceLine](), {*range(len(code))}
    if decision.place:
        result = _piece(decision, code, sources)
        if isinstance(result, Cause):
            return None, result
        piece, scope = result
    elif decision.must_not and separate and _matching(listing, meanings()["call"].sass):
        return None, CalledSeparately(separate[0])
    missed: list[str] = []
    shown, blamed = set[int](), set[int]()
    for requirement in decision.requirements:
        number, _, name = requirement.rpartition(" ")
        *patterns, (low, high) = meanings()[name][:4]
        if not low <= int(re.sub(r"\D", "", arch)) <= high:
            return None, NotOnArch(name, arch)
        hits, weaker, instead = (scope & _matching(listing, pattern) for pattern in patterns)
        weaker -= hits
        wrong = hits if number == "no" else weaker or (set() if hits else instead)
        shown |= hits | wrong
        if hits if number == "no" else len(hits) < int(number or 1) or (piece and weaker):
            missed.append(requirement)
            blamed |= wrong
    lines = [
        # Its line in the piece, else the innermost one in a file that is here, else the innermost one.
        min(code[n].lines, key=lambda line: (line not in piece, not sources.text(line.file)[1]))
        for n in sorted(blamed)
        if code[n].lines
    ]
    file, line = mode(lines or [min(piece, default=SourceLine("", 0))])
    opcodes = Counter(code[n].opcode for n in shown)
    words = ", ".join(f"{opcode} ×{times}" for opcode, times in sorted(opcodes.items()))
    return len(missed), Decided(sources.text(file)[0], line, tuple(missed), words)


def _piece(
    decision: Decision, code: Sequence[Instruction], sources: Sources
) -> tuple[set[SourceLine], set[int]] | Cause:
    """The lines of a decision's piece, and the indices of its instructions."""
    places: dict[str, set[SourceLine]] = {}
    files = sorted({line.file for i in code for line in i.lines})
    for file in files:
        name, lines = sources.text(file)
        path = sources.root / name
        if lines and sources.compiled and not names_source(sources.compiled, path.name, path.stat().st_size):
            return NoLines(name)
        # Triton 3.9 places a function's loads behind its last line: a piece would seem to have none.
        numbers = {line.number for i in code for line in i.lines if line.file == file}
        if lines and not all(n <= len(lines) and lines[n - 1].strip() for n in numbers):
            return NoLines(name)
        for first, last in pieces("\n".join(lines), decision, python=name.endswith(".py")):
            places.setdefault(f"{name}:{first}", set()).update(SourceLine(file, n) for n in range(first, last + 1))
    if len(places) == 1:
        (piece,) = places.values()
        innermost = {i.lines[0] for i in code if not piece.isdisjoint(i.lines)}  # of all calls of what is inlined
        if scope := {n for n, i in enumerate(code) if not innermost.isdisjoint(i.lines[:1])}:
            return piece, scope
    return NoPiece(decision.place, tuple(places)) if files else NoLines()


def _matching(listing: str, pattern: str) -> set[int]:
    """The indices of the lines in which a match ends."""
    marked = re.sub(f"^(?:{pattern or '(?!)'})", "\\g<0>\0", listing, flags=re.MULTILINE)
    return {n for n, line in enumerate(marked.split("\n")) if "\0" in line}
