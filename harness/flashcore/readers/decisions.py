"""Judges budgets on compiler decisions by machine code with line information.

Line tables do not always tell apart the calls of one inlined function, and some instructions have the line of an
earlier one. So a piece has no line to spare: the instructions of a function that is inlined into it are those of all
its calls in the kernel, and in a piece nothing weaker may stand beside what must be there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flashcore.model.causes import CalledSeparately, Cause, Decided, NoLines, NoPiece, NotOnArch
from flashcore.model.decisions import counted, meanings
from flashcore.model.suite import Decision
from flashcore.readers import spills
from flashcore.readers.cubin import names_source
from flashcore.readers.pieces import pieces
from flashcore.readers.sass import Instruction, SourceLine


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of some machine code.

    Args:
        root: the folder that names of files are relative to.
        cubin: the code, if its sources may have changed since: files that its line tables do not list are others.
    """

    root: Path
    cubin: bytes | None = None
    _texts: dict[str, tuple[str, str | NoLines | None]] = field(default_factory=dict)

    def read(self, name: str) -> tuple[str, str | NoLines | None]:
        """The file's name relative to the root, and its text; ``None`` if it is not there, or why it cannot be used."""
        if name not in self._texts:
            path = spills.relative_path(name, self.root)
            content = file.read_bytes() if (file := self.root / path).is_file() else None
            text: str | NoLines | None = None if content is None else content.decode(errors="replace")
            if content is not None and self.cubin and not names_source(self.cubin, file.name, len(content)):
                text = NoLines(path)
            self._texts[name] = path, text
        return self._texts[name]


class _Piece(NamedTuple):
    """Lines of a file."""

    file: str
    first: int
    last: int

    def has(self, line: SourceLine) -> bool:
        return line.file == self.file and self.first <= line.number <= self.last


@cache
def _lines(places: tuple[str, ...]) -> tuple[SourceLine, ...]:
    return tuple(Instruction("", "", places, ()).lines)


class Code:
    """The functions of a cubin.

    Args:
        functions: as :func:`flashcore.readers.sass.functions` gives them.
        kernels: the names of those that are kernels.
    """

    def __init__(
        self, functions: Mapping[str, Sequence[Instruction]], kernels: Collection[str], arch: str, sources: Sources
    ) -> None:
        self._functions, self._arch, self._sources = functions, arch, sources
        self._separate = [name for name in functions if name not in kernels]
        places = {i.places for code in functions.values() for i in code}
        self._files = sorted({line.file for p in places for line in _lines(p)})

    def decided(self, decision: Decision, kernel: str) -> tuple[int | None, Cause | Decided]:
        """How many of the decision's names do not hold in a kernel and what is there, or why that is not known."""
        code = self._functions[kernel]
        for name in (*(counted(name)[1] for name in decision.must), *decision.must_not):
            if not meanings()[name].is_on(self._arch):
                return None, NotOnArch(name, self._arch)
        if not decision.place:
            calls = (i for i in code if i.name == "CALL" and "$__internal_" not in i.text)
            if decision.must_not and self._separate and any(calls):
                return None, CalledSeparately(self._separate[0])
            return self._outcome(decision, code, range(len(code)), None)
        piece = self._piece(decision)
        if isinstance(piece, Cause):
            return None, piece
        if scope := _inside(code, piece):
            return self._outcome(decision, code, scope, piece)
        return None, NoPiece(decision.place, (f"{self._sources.read(piece.file)[0]}:{piece.first}",))

    def _piece(self, decision: Decision) -> _Piece | Cause:
        results: dict[str, _Piece] = {}
        for name in self._files:
            path, text = self._sources.read(name)
            if isinstance(text, NoLines):
                return text
            for first, last in pieces(text or "", decision, python=path.endswith(".py")):
                results[f"{path}:{first}"] = _Piece(name, first, last)
        if len(results) == 1:
            return results.popitem()[1]
        return NoPiece(decision.place, tuple(results)) if self._files else NoLines()

    def _outcome(
        self, decision: Decision, code: Sequence[Instruction], scope: Collection[int], piece: _Piece | None
    ) -> tuple[int, Decided]:
        missed: list[str] = []
        there, blamed = list[Instruction](), list[Instruction]()
        for required in decision.must:
            least, name = counted(required)
            hits = _matching(code, scope, name)
            weaker, instead = (_others(code, scope, name, kind) for kind in ("weaker", "instead"))
            there += [*hits, *weaker]
            if len(hits) < least or (piece and weaker):
                missed.append(required)
                there += [] if hits else instead
                blamed += weaker or ([] if hits else instead)
        for name in decision.must_not:
            if hits := _matching(code, scope, name):
                missed.append(f"no {name}")
                there += hits
                blamed += hits
        counts = Counter(i.opcode for i in there)
        words = ", ".join(f"{opcode} ×{times}" for opcode, times in sorted(counts.items()))
        lines = Counter(line for i in blamed if (line := self._line(i, piece)))
        if piece and not lines:
            lines[SourceLine(piece.file, piece.first)] = 1
        (file, number), _ = lines.most_common(1)[0] if lines else (("", 0), 0)
        return len(missed), Decided(self._sources.read(file)[0] if file else "", number, tuple(missed), words)

    def _line(self, instruction: Instruction, piece: _Piece | None) -> SourceLine | None:
        """Its line in the piece, else the innermost one in a file that is here, else the innermost one."""
        lines = _lines(instruction.places)
        inside = [line for line in lines if piece and piece.has(line)]
        here = [line for line in lines if self._sources.read(line.file)[1] is not None]
        return next(iter((*inside, *here, *lines)), None)


def _inside(code: Sequence[Instruction], piece: _Piece) -> list[int]:
    """The instructions of a piece, and of all calls of what is inlined into it."""
    places = {i.places for i in code}
    direct = {p for p in places if any(map(piece.has, _lines(p)))}
    inlined = {_lines(p)[0] for p in direct if not piece.has(_lines(p)[0])}
    every = direct | {p for p in places if _lines(p)[:1] and _lines(p)[0] in inlined}
    return [n for n, i in enumerate(code) if i.places in every]


def _matching(code: Sequence[Instruction], scope: Collection[int], name: str) -> list[Instruction]:
    """The instructions in scope that show the name."""
    if special := _SPECIAL.get(name):
        return [code[n] for n in sorted({*special(code)} & {*scope})]
    return [code[n] for n in scope if _shows(code[n], meanings()[name].sass)]


def _others(code: Sequence[Instruction], scope: Collection[int], name: str, kind: str) -> list[Instruction]:
    """The ``weaker`` instructions in scope, or those ``instead``, that do not show the name."""
    meaning = meanings()[name]
    pattern = getattr(meaning, kind)
    return [code[n] for n in scope if pattern and _shows(code[n], pattern) and not _shows(code[n], meaning.sass)]


def _shows(instruction: Instruction, pattern: str) -> bool:
    call = f" {instruction.operands}" if instruction.name == "CALL" else ""
    return re.match(pattern, instruction.opcode + call) is not None


def _waits(code: Sequence[Instruction]) -> Iterator[int]:
    """Each wgmma that is waited for before the next one starts, with none before it in its group."""
    steps = [(n, i) for n, i in enumerate(code) if re.match(r"[HIQB]GMMA\b|WARPGROUP\.DEPBAR", i.opcode)]
    alone = True
    for (n, step), (_, following) in pairwise(steps):
        if step.name != "WARPGROUP":
            ends = step.operands.endswith("gsb0")
            if alone and ends and following.operands.endswith("gsb0, 0x0"):
                yield n
            alone = ends


_SPECIAL: Mapping[str, Callable[[Sequence[Instruction]], Iterator[int]]] = {
    "loop": spills.closing_branches,
    "wgmma_serial": _waits,
}
