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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.record import Instruction
from flashcore.readers.kernel_names import canonical
from flashcore.readers.local_memory import below

_MARKER = re.compile(r"\s*//\s*phase:\s*(\S+)\s*")  # a sentence is no marker, an invalid name is a mistake
_NAME = re.compile(r"[a-z][a-z0-9_]*")

_SECTION = re.compile(r"^\.text\.(\S+?):?$|^\t?\.section\t\.text\.([^,\s]+)")
_PLACE = re.compile(r'^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)')
_FUNCTION = re.compile(r"^[^\s./][^:]*:")
_LABEL = re.compile(r"^(\.L[\w.$]*):")
_INSTRUCTION = re.compile(r"^\s+/\*(?P<offset>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*)")
_LOOP_FOR_EVER = re.compile(r"BRA `\((\S+)\)\s*")

Lines = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Code:
    """The phases of one variant's machine code.

    Args:
        names: its phases, in the order of the sources, ``other`` at the end.
        kernels: kernel → offset of each instruction in bytes → its phase.
        why: why there is no kernel.
        listing: kernel → its instructions with the lines that they come from; nothing counted yet.
    """

    names: tuple[str, ...]
    kernels: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    why: str = ""
    listing: Mapping[str, tuple[Instruction, ...]] = field(default_factory=dict)


def of_lines(text: str, file: str = "the source") -> tuple[str, ...]:
    """The phase of each line of a source, empty where no marker covers it.

    Raises:
        UsageError: a marker does not give a name.
    """
    found: list[str] = []
    phase = ""
    for number, line in enumerate(text.split("\n"), 1):
        if marker := _MARKER.fullmatch(line):
            phase = marker[1]
            if not _NAME.fullmatch(phase):
                raise UsageError(
                    f"{file}:{number}: expected the name of a phase ({_NAME.pattern}), found {phase!r}\n"
                    "  hint: write it as // phase: softmax"
                )
        found.append(phase)
        if line.startswith("}"):
            phase = ""
    return tuple(found)


class Sources:
    """The phases of the lines of a suite's files, each file read once; other files have none.

    Args:
        root: the suite's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, tuple[str, ...]] = {}
        self._lines: dict[str, tuple[str, list[str]]] = {}

    def __call__(self, file: str) -> tuple[str, ...]:
        if file not in self._known:
            name, lines = self.text(file)
            self._known[file] = of_lines("\n".join(lines), name)
        return self._known[file]

    def text(self, file: str) -> tuple[str, list[str]]:
        """A file's name below the suite, and its lines; none of a file that does not lie there."""
        if file not in self._lines:
            name = below(file, self.root)
            try:
                text = (self.root / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            self._lines[file] = name, text.split("\n") if text else []
        return self._lines[file]


def of_variant(source: str, listing: str | None, sources: Sources) -> Code | None:
    """The phases of a variant's code, ``None`` where its sources mark none, and its instructions line by line.

    Args:
        source: its source, relative to the suite.
        listing: what ``nvdisasm -c -gi`` says of its code; ``None`` without a disassembler.
        sources: file → the phase of each of its lines.
    """
    marked = [phase for phase in sources(source) if phase]
    kernels = {canonical(kernel): code for kernel, code in of_code(listing, sources).items()} if listing else {}
    found = [phase for code in kernels.values() for phase in code.values()]
    names = [name for name in dict.fromkeys(marked + found) if name != OTHER_PHASE]
    if not names:
        return None
    shown = {canonical(kernel): own for kernel, own in instructions(listing, sources).items()} if listing else {}
    why = "" if kernels else "no listing of its code: nvdisasm was not there"
    return Code((*names, OTHER_PHASE), kernels, why, shown)


def instructions(listing: str, sources: Sources) -> dict[str, tuple[Instruction, ...]]:
    """Kernel → its instructions, each with the suite's source line that it comes from: the innermost of the inlined
    lines that is in a file of the suite."""
    found: dict[str, list[Instruction]] = {}
    code: list[Instruction] = []
    stack: list[tuple[str, int]] = []
    at: tuple[str, int, str] = ("", 0, "")
    for line in listing.splitlines():
        if place := _PLACE.match(line):
            stack.append((place["file"], int(place["line"])))
        elif instruction := _INSTRUCTION.match(line):
            if stack:
                own = ((name, n, text[n - 1].strip()) for f, n in stack for name, text in [sources.text(f)]
                       if 0 < n <= len(text))  # fmt: skip
                at, stack = next(own, ("", 0, "")), []
            code.append(Instruction(int(instruction["offset"], 16), instruction["text"].strip(), *at, {}))
        elif section := _SECTION.match(line):
            code = found.setdefault(section[1] or section[2], [])
            at, stack = ("", 0, ""), []
    return {kernel: tuple(code) for kernel, code in found.items()}


def of_code(listing: str, sources: Lines) -> dict[str, dict[int, str]]:
    """Kernel → offset → phase, of the disassembler's text with its inlined lines."""
    found: dict[str, dict[int, str]] = {}
    code: dict[int, str] = {}
    stack: list[tuple[str, int]] = []  # the lines of the instruction to come, what was inlined before where
    phase, label = OTHER_PHASE, ""
    for line in listing.splitlines():
        if place := _PLACE.match(line):
            stack.append((place["file"], int(place["line"])))
        elif instruction := _INSTRUCTION.match(line):
            if stack:
                phase = _phase(stack, sources)
                stack = []
            # The compiler ends a kernel with a jump to itself: warps that have exited are sampled there.
            jump = _LOOP_FOR_EVER.fullmatch(instruction["text"])
            code[int(instruction["offset"], 16)] = OTHER_PHASE if label and jump and jump[1] == label else phase
            label = ""
        elif section := _SECTION.match(line):
            code = found.setdefault(section[1] or section[2], {})
            phase = OTHER_PHASE
        elif at := _LABEL.match(line):
            label = at[1]
        elif _FUNCTION.match(line):
            phase = OTHER_PHASE  # nothing is known of a helper that the compiler added
    return found


def _phase(stack: Sequence[tuple[str, int]], sources: Lines) -> str:
    for file, number in stack:
        lines = sources(file)
        if number <= len(lines) and lines[number - 1]:
            return lines[number - 1]
    return OTHER_PHASE
