"""Which phase of its kernel each machine instruction belongs to.

A source splits its kernels by comments that stand on a line of their own::

    // phase: softmax

Such a marker opens a phase, which lasts until the next marker or to the end of the function: a line that
starts with a closing brace. What a header holds counts where it was called from, unless the header marks
phases itself: of the lines that the compiler inlined into one another, the innermost marked one decides.
Code that no marker covers is ``other``; a marker of that name closes a phase.

A barrier belongs to the phase before it: warps that arrive early wait there for those still in that phase.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.record import Instruction
from flashcore.readers import sass
from flashcore.readers.kernel_names import canonical
from flashcore.readers.spills import relative_path

_MARKER = re.compile(r"\s*//\s*phase:\s*(\S+)\s*")  # a sentence is no marker, an invalid name is a mistake
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Code:
    """The phases of one variant's machine code.

    Args:
        names: its phases, in the order of the sources, ``other`` at the end.
        kernels: kernel → offset of each instruction in bytes → its phase.
        why: why there is no kernel.
        listing: kernel → its instructions with the lines that they come from; nothing counted yet.
        files: name → text of the source files that the listing names.
    """

    names: tuple[str, ...]
    kernels: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    why: str = ""
    listing: Mapping[str, tuple[Instruction, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def of_lines(text: str, file: str = "the source") -> tuple[str, ...]:
    """The phase of each line of a source, empty where no marker covers it.

    Raises:
        UsageError: a marker does not give a name.
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
    """The phases of the lines of a suite's files; other files have none. Each file is read once.

    Args:
        root: the suite's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.phases = functools.cache(self._phases)
        self.text = functools.cache(self._text)

    def _phases(self, file: str) -> tuple[str, ...]:
        name, lines = self.text(file)
        return of_lines("\n".join(lines), name)

    def _text(self, file: str) -> tuple[str, list[str]]:
        """A file's name below the suite, and its lines; none of a file that does not lie there."""
        name = relative_path(file, self.root)
        try:
            text = (self.root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        return name, text.split("\n") if text else []


def of_variant(source: str, listing: str | None, sources: Sources) -> Code | None:
    """The phases of a variant's code and its instructions; ``None`` where its sources mark no phase.

    Args:
        source: its source, relative to the suite.
        listing: its code, as ``nvdisasm -c -gi`` prints it; ``None`` without a disassembler.
        sources: file → the phase of each of its lines.
    """
    marked = [phase for phase in sources.phases(source) if phase]
    functions = {canonical(name): code for name, code in sass.parse(listing or "").items()}
    kernels = {kernel: of_code(code, sources.phases) for kernel, code in functions.items()}
    used = [phase for phases in kernels.values() for phase in phases.values()]
    names = [name for name in dict.fromkeys(marked + used) if name != OTHER_PHASE]
    if not names:
        return None
    listings = {kernel: tuple(_listed(i, sources) for i in code) for kernel, code in functions.items()}
    why = "" if kernels else "no listing of its code: nvdisasm was not there"
    named = {name for code in listings.values() for i in code for name in (i.file, *(call[0] for call in i.calls))}
    files = {name: "\n".join(sources.text(name)[1]) for name in sorted(named - {""})}
    return Code((*names, OTHER_PHASE), kernels, why, listings, files)


def of_code(code: Sequence[sass.Instruction], phases: Callable[[str], Sequence[str]]) -> dict[int, str]:
    """Offset of each instruction → its phase.

    Args:
        phases: file → the phase of each of its lines.
    """
    return {i.offset: OTHER_PHASE if _is_trap(i) else _phase(i, phases) for i in code}


def _is_trap(instruction: sass.Instruction) -> bool:
    """Whether it is the jump to itself that ends a kernel: warps that have exited are sampled there."""
    return any(instruction.text == f"BRA `({label})" for label in instruction.labels)


def _phase(instruction: sass.Instruction, phases: Callable[[str], Sequence[str]]) -> str:
    for file, number in instruction.lines:
        marked = phases(file)
        if number <= len(marked) and marked[number - 1]:
            return marked[number - 1]
    return OTHER_PHASE


def _listed(instruction: sass.Instruction, sources: Sources) -> Instruction:
    """The instruction with those of its lines that are in a file of the suite: the innermost, and its calls."""
    places: dict[tuple[str, int, str], None] = {}
    for file, number in instruction.lines:
        name, lines = sources.text(file)
        if 0 < number <= len(lines):
            places[name, number, lines[number - 1].strip()] = None
    place, *calls = places or [("", 0, "")]
    return Instruction(instruction.offset, instruction.text, *place, {}, tuple(calls))
