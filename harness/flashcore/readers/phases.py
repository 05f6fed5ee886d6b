"""Attributes machine instructions to the phases of their kernel.

A source marks phases by comments on separate lines::

    // phase: softmax

A phase lasts until the next marker or the end of the function, which is a line that starts with a closing brace. Code
outside all phases belongs to ``other``; a marker of that name ends a phase. An inlined instruction belongs to the phase
of its innermost marked line, so a header without markers counts where it is called.

Put a barrier at the end of a phase: warps that arrive early wait there for those still in the phase.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.record import CountedInstruction, SourcePlace
from flashcore.readers import sass
from flashcore.readers.kernel_names import canonical
from flashcore.readers.spills import relative_path

_MARKER = re.compile(r"\s*//\s*phase:\s*(\S+)\s*")  # a sentence does not match; an invalid name is reported
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Code:
    """The phases of one variant's machine code.

    Args:
        names: its phases in source order, ``other`` last.
        kernels: kernel → offset of each instruction in bytes → its phase.
        why: why there are no kernels.
        listing: kernel → its instructions with source lines, without counters.
        files: the listing's source files, name → text.
    """

    names: tuple[str, ...]
    kernels: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    why: str = ""
    listing: Mapping[str, tuple[CountedInstruction, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def of_lines(text: str, file: str = "the source") -> tuple[str, ...]:
    """The phase of each line of a source; empty for lines outside all phases.

    Raises:
        UsageError: a marker's name is invalid.
    """
    phases: list[str] = []
    phase = ""
    for number, line in enumerate(text.split("\n"), 1):
        if marker := _MARKER.fullmatch(line):
            phase = marker[1]
            if not _NAME.fullmatch(phase):
                raise UsageError(
                    f"{file}:{number}: expected the name of a phase ({_NAME.pattern}), found {phase!r}\n"
                    "  hint: write it as // phase: softmax"
                )
        phases.append(phase)
        if line.startswith("}"):
            phase = ""
    return tuple(phases)


class Sources:
    """The text and the phases of a suite's source lines; files outside the suite have none. Each file is read once.

    Args:
        root: the suite's folder.
        compiled: a cubin of the files, if they may have changed since.
    """

    def __init__(self, root: Path, compiled: bytes | None = None) -> None:
        self.root, self.compiled = root, compiled
        self.phases = functools.cache(self._phases)
        self.text = functools.cache(self._text)

    def _phases(self, file: str) -> tuple[str, ...]:
        name, lines = self.text(file)
        return of_lines("\n".join(lines), name)

    def _text(self, file: str) -> tuple[str, list[str]]:
        """A file's path relative to the suite, and its lines; no lines if the suite does not contain it."""
        name = relative_path(file, self.root)
        try:
            text = (self.root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        return name, text.split("\n") if text else []


def of_variant(source: str, listing: str | None, sources: Sources) -> Code | None:
    """The phases of a variant's code, and its instructions; ``None`` if its sources mark no phase.

    Args:
        source: its source file, relative to the suite.
        listing: the output of ``nvdisasm -c -gi``; ``None`` without a disassembler.
        sources: the suite's files.
    """
    marked = [phase for phase in sources.phases(source) if phase]
    functions = {canonical(name): code for name, code in sass.parse(listing or "").items()}
    kernels = {kernel: of_code(code, sources.phases) for kernel, code in functions.items()}
    used = [phase for phases in kernels.values() for phase in phases.values()]
    names = [name for name in dict.fromkeys(marked + used) if name != OTHER_PHASE]
    if not names:
        return None
    listings = {kernel: tuple(_listed(i, sources) for i in code) for kernel, code in functions.items()}
    why = "" if kernels else "no SASS listing: nvdisasm is missing"
    names_used = {name for code in listings.values() for i in code for name in (i.file, *(call[0] for call in i.calls))}
    files = {name: "\n".join(sources.text(name)[1]) for name in sorted(names_used - {""})}
    return Code((*names, OTHER_PHASE), kernels, why, listings, files)


def of_code(code: Sequence[sass.Instruction], phases: Callable[[str], Sequence[str]]) -> dict[int, str]:
    """The phase of each instruction, by offset. Exited warps are sampled at a kernel's trap, which has none.

    Args:
        phases: file → the phase of each of its lines.
    """
    return {i.offset: OTHER_PHASE if i.is_trap else _phase(i, phases) for i in code}


def _phase(instruction: sass.Instruction, phases: Callable[[str], Sequence[str]]) -> str:
    for file, number in instruction.lines:
        marked = phases(file)
        if number <= len(marked) and marked[number - 1]:
            return marked[number - 1]
    return OTHER_PHASE


def _listed(instruction: sass.Instruction, sources: Sources) -> CountedInstruction:
    """The instruction with its source lines in the suite: the innermost one, and its calls."""
    places: dict[SourcePlace, None] = {}
    for file, number in instruction.lines:
        name, lines = sources.text(file)
        if 0 < number <= len(lines):
            places[name, number, lines[number - 1].strip()] = None
    place, *calls = places or [("", 0, "")]
    return CountedInstruction(instruction.offset, instruction.text, *place, {}, tuple(calls))
