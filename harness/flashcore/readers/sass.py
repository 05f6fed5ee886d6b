"""Parses the SASS listing of ``nvdisasm -c -gi``: each function's instructions and their source lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.]*)")
_PLACE = re.compile(r'\s*//## File "([^"]+)", line (\d+)')
_SECTION = re.compile(r"(?:\t?\.section\t)?\.text\.([^,\s]+?)(?:,|:?$)")
_LABEL = re.compile(r"(\.L[\w.$]*):")
_HELPER = re.compile(r"[^\s./][^:]*:")
#: Size modifier → bytes of an access; 4 without one.
_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
_TARGET = re.compile(r"\.L[\w.$]*")


class FileLine(NamedTuple):
    """A line of a source file, numbered from 1."""

    file: str
    number: int


class Instruction(NamedTuple):
    """One machine instruction. Only the opcode is parsed eagerly, because most readers need no more.

    Args:
        opcode: with its modifiers: ``LDG.E.128``.
        listed: its line of the listing.
        places: the listing's lines before it that name its source lines.
        labels: the labels directly before it.
    """

    opcode: str
    listed: str
    places: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def offset(self) -> int:
        """Bytes from the start of its section."""
        return int(self.listed.partition("*/")[0].strip(" \t/*"), 16)

    @property
    def text(self) -> str:
        """The whole instruction, predicate included: ``@!P0 BRA `(.L_x_2)``."""
        return self.listed.partition("*/")[2].partition(";")[0].strip()

    @property
    def lines(self) -> tuple[FileLine, ...]:
        """Its source lines: the innermost inlined line first, the kernel's line last.

        Empty without line information, and in helper functions that the compiler adds.
        """
        return _lines(self.places)

    @property
    def is_predicated(self) -> bool:
        """Whether it has a predicate, as in ``@!P0 BRA``."""
        return self.text.startswith("@")

    @property
    def is_trap(self) -> bool:
        """Whether it is the jump to itself at the end of a kernel."""
        return any(self.text == f"BRA `({label})" for label in self.labels)

    @property
    def name(self) -> str:
        """The opcode without modifiers: ``LDG``."""
        return self.opcode.partition(".")[0]

    @property
    def width(self) -> int:
        """Bytes per thread of a load or store."""
        return next((_WIDTHS[m] for m in self.opcode.split(".") if m in _WIDTHS), 4)

    @property
    def operands(self) -> str:
        """The text after the opcode."""
        return self.text.partition(self.opcode)[2].strip()

    @property
    def targets(self) -> list[str]:
        """The labels among its operands."""
        return _TARGET.findall(self.operands)


@functools.lru_cache(1 << 16)
def _lines(places: tuple[str, ...]) -> tuple[FileLine, ...]:
    matches = map(_PLACE.match, places)
    return tuple(FileLine(match[1], int(match[2])) for match in matches if match)


def parse(listing: str) -> dict[str, list[Instruction]]:
    """The instructions of each function in code order, by mangled name; empty if the listing has no function."""
    return dict(functions(listing.splitlines()))


def functions(lines: Iterable[str]) -> Iterator[tuple[str, list[Instruction]]]:
    """The functions of a listing, one at a time."""
    name = ""
    code: list[Instruction] = []
    pending: list[str] = []  # the source lines of the next instruction
    places: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    for line in lines:
        if match := _INSTRUCTION.match(line):
            if pending:
                places, pending = tuple(pending), []
            code.append(Instruction(match[1], line, places, labels))
            labels = ()
        elif line.startswith("\t//## "):
            pending.append(line)
        elif match := _LABEL.match(line):
            labels = (*labels, match[1])
        elif (match := _SECTION.match(line)) or _HELPER.match(line):
            pending, places, labels = [], (), ()
            if match and match[1] != name:
                if name:
                    yield name, code
                name, code = match[1], []
    if name:
        yield name, code
