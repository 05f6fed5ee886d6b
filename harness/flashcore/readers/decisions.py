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
from pathlib import Path

from flashcore.model.causes import CalledSeparately, Cause, Decided, NoLines, NoPiece, NotOnArch
from flashcore.model.decisions import counted, meanings
from flashcore.model.suite import Decision
from flashcore.readers import spills
from flashcore.readers.pieces import pieces
from flashcore.readers.sass import Instruction, SourceLine


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of some machine code.

    Args:
        root: the folder that names of files are relative to.
        sizes: bytes of each file when it was compiled, by its name in the line table; a file that differs, or is not
            among them, is another. ``None``: the code was compiled from the present files.
    """

    root: Path
    sizes: Mapping[str, int] | None = None
    _texts: dict[str, tuple[str, str | NoLines | None]] = field(default_factory=dict)

    def read(self, name: str) -> tuple[str, str | NoLines | None]:
        """The file's name relative to the root, and its text; ``None`` if it is not there, or why it cannot be used."""
        if name not in self._texts:
            path = spills.relative_path(name, self.root)
            text: str | NoLines | None = None
            if (file := self.root / path).is_file():
                content = file.read_bytes()
                same = self.sizes is None or self.sizes.get(name) == len(content)
                text = content.decode(errors="replace") if same else NoLines(path)
            self._texts[name] = path, text
        return self._texts[name]


@dataclass(frozen=True, slots=True)
class _Piece:
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
        self._functions, self._kernels, self._arch, self._sources = functions, kernels, arch, sources
        places = {p for code in functions.values() for p in {i.places for i in code}}
        self._files = sorted({line.file for p in places for line in _lines(p)})

    def decided(self, decision: Decision, kernel: str) -> tuple[int | None, Cause | Decided]:
        """How many of the decision's names do not hold in a kernel and what is there, or why that is not known."""
        code = self._functions[kernel]
        piece = self._piece(decision) if decision.place else None
        if isinstance(piece, Cause):
            return None, piece
        if absent := [n for n in self._names(decision) if not meanings()[n].is_on(self._arch)]:
            return None, NotOnArch(absent[0], self._arch)
        scope = _inside(code, piece) if piece else range(len(code))
        if piece and not scope:
            lines = [i for i in code if i.places]
            at = f"{self._sources.read(piece.file)[0]}:{piece.first}"
            return None, NoPiece(decision.place, (at,)) if lines else NoLines()
        if not piece and decision.must_not and (called := self._called(code)):
            return None, CalledSeparately(called)
        return self._outcome(decision, code, scope, piece)

    def _names(self, decision: Decision) -> list[str]:
        return [counted(name)[1] for name in (*decision.must, *decision.must_not)]

    def _called(self, code: Sequence[Instruction]) -> str:
        """A function that is not in the kernel's code, and that it may call."""
        separate = [name for name in self._functions if name not in self._kernels]
        calls = [i for i in code if i.name == "CALL" and "$__internal_" not in i.text and not i.targets]
        return separate[0] if separate and calls else ""

    def _piece(self, decision: Decision) -> _Piece | Cause:
        if not self._files:
            return NoLines()
        results: dict[str, _Piece] = {}
        for name in self._files:
            path, text = self._sources.read(name)
            if isinstance(text, NoLines):
                return text
            for first, last in pieces(text, decision, python=path.endswith(".py")) if text is not None else ():
                results[f"{path}:{first}"] = _Piece(name, first, last)
        return next(iter(results.values())) if len(results) == 1 else NoPiece(decision.place, tuple(results))

    def _outcome(
        self, decision: Decision, code: Sequence[Instruction], scope: Collection[int], piece: _Piece | None
    ) -> tuple[int, Decided]:
        missed: list[str] = []
        there = Counter[str]()
        blamed: list[Instruction] = []
        for required in decision.must:
            least, name = counted(required)
            hits, weaker, instead = (_matching(code, scope, name, kind) for kind in ("sass", "weaker", "instead"))
            there.update(code[i].opcode for i in (*hits, *weaker))
            if len(hits) < least or (piece and weaker):
                missed.append(required)
                there.update(code[i].opcode for i in instead if not hits)
                blamed += [code[i] for i in weaker or ([] if hits else instead)]
        for name in decision.must_not:
            if hits := _matching(code, scope, name):
                missed.append(f"no {name}")
                there.update(code[i].opcode for i in hits)
                blamed += [code[i] for i in hits]
        at = self._at(blamed, piece)
        words = ", ".join(f"{opcode} ×{times}" for opcode, times in sorted(there.items()))
        return len(missed), Decided(*at, tuple(missed), words)

    def _at(self, blamed: Sequence[Instruction], piece: _Piece | None) -> tuple[str, int]:
        """The line with most of these instructions; else the piece's."""
        lines = Counter(line for i in blamed if (line := self._line(i, piece)))
        if not lines and piece:
            lines[SourceLine(piece.file, piece.first)] = 1
        return next(((self._sources.read(file)[0], number) for (file, number), _ in lines.most_common(1)), ("", 0))

    def _line(self, instruction: Instruction, piece: _Piece | None) -> SourceLine | None:
        """Its line in the piece, else the innermost one in a file that is here, else the innermost one."""
        lines = _lines(instruction.places)
        inside = (line for line in lines if piece and piece.has(line))
        here = (line for line in lines if self._sources.read(line.file)[1] is not None)
        return next(inside, None) or next(here, None) or next(iter(lines), None)


def _inside(code: Sequence[Instruction], piece: _Piece) -> list[int]:
    """The instructions of a piece, and of all calls of what is inlined into it."""
    places = {i.places for i in code}
    direct = {p for p in places if any(map(piece.has, _lines(p)))}
    inlined = {_lines(p)[0] for p in direct if not piece.has(_lines(p)[0])}
    every = direct | {p for p in places if _lines(p) and _lines(p)[0] in inlined}
    return [n for n, i in enumerate(code) if i.places in every]


def _matching(code: Sequence[Instruction], scope: Collection[int], name: str, kind: str = "sass") -> list[int]:
    """The instructions in scope that show the name; those of another ``kind`` do not."""
    meaning = meanings()[name]
    if special := _SPECIAL.get(name):
        return sorted({*special(code)} & {*scope}) if kind == "sass" else []
    hits = [n for n in scope if _shows(code[n], meaning.sass)]
    if kind == "sass":
        return hits
    pattern = getattr(meaning, kind)
    return [n for n in scope if pattern and n not in hits and _shows(code[n], pattern)]


def _shows(instruction: Instruction, pattern: str) -> bool:
    text = instruction.opcode
    if text.startswith("CALL"):
        text += f" {instruction.operands}"
    return re.match(pattern, text) is not None


def _waits(code: Sequence[Instruction]) -> Iterator[int]:
    """Each wgmma that is waited for before the next one starts, with none before it in its group."""
    alone = True
    for n, instruction in enumerate(code):
        if re.match(r"[HIQB]GMMA\b", instruction.opcode):
            following = next((i for i in code[n + 1 :] if re.match(r"[HIQB]GMMA\b|WARPGROUP\.DEPBAR", i.opcode)), None)
            ends = instruction.operands.endswith("gsb0")
            if alone and ends and following and following.operands.endswith("gsb0, 0x0"):
                yield n
            alone = ends


_SPECIAL: Mapping[str, Callable[[Sequence[Instruction]], Iterator[int]]] = {
    "loop": spills.closing_branches,
    "wgmma_serial": _waits,
}
