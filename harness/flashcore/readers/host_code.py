"""Hashes an object file's host code, independently of source text and kernels.

The hash ignores embedded device code, nvcc's random ids per compilation, unwinding tables and notes. Referenced symbols
count by name.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from flashcore.errors import FlashcoreError
from flashcore.model.files import text_hash
from flashcore.readers.cubin import sections_of, symbols_of

_ALLOCATED, _RELOCATIONS = 2, 4
_IGNORED = re.compile(r"\.(nv|eh_frame|note|gcc_except_table)|__nv_module_id")
#: Names that nvcc generates from a random number, or from the file's name and a hash of its text.
_RANDOM = re.compile(
    r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+|_GLOBAL__N__[0-9a-f]{8}_\d+_\w+?_[0-9a-f]{8}(_\d+)?"
    r"|[0-9a-f]{8}_\d+_\w+_cu_[0-9a-f]{8}(_\d+)?"
)


def read(path: Path, without: str = "") -> tuple[str, str]:
    """The hash of an object's host code, and its compiler. Hashes are comparable within one compiler.

    Args:
        without: a name in the code to ignore. Hashes are comparable if the ignored names have the same length.

    Raises:
        FlashcoreError: it is not an object file, or truncated.
    """
    data = path.read_bytes()
    if without:
        data = data.replace(without.encode(), b"?" * len(without.encode()))
    try:
        return _read(data)
    except (struct.error, LookupError, ValueError) as error:
        raise FlashcoreError(f"{path}: expected a 64-bit object file, found {data[:4]!r} ({error})") from error


def undefined(path: Path) -> list[str]:
    """The symbols that an object uses but does not define, such as the functions that it calls."""
    data = path.read_bytes()
    return [symbol.name for symbol in symbols_of(data, sections_of(data)) if symbol.name and not symbol.section]


def _read(data: bytes) -> tuple[str, str]:
    sections = sections_of(data)
    symbols = []
    for symbol in symbols_of(data, sections):
        fallback = sections[symbol.section].name if symbol.section < len(sections) else ""
        symbols.append(_RANDOM.sub("", symbol.name or fallback))
    references: dict[int, list[tuple[int, int, str, int]]] = {}
    for s in sections:
        for place, info, addend in struct.iter_unpack("<QQq", s.content(data)) if s.kind == _RELOCATIONS else ():
            references.setdefault(s.info, []).append((place, info & 0xFFFFFFFF, symbols[info >> 32], addend))
    parts, compilers = [], set()
    for i, s in enumerate(sections):
        content = s.content(data)
        if s.flags & _ALLOCATED and not _IGNORED.match(s.name):
            parts.append(repr((_RANDOM.sub("", s.name), s.size, content, sorted(references.get(i, [])))))
        elif s.name == ".comment":
            compilers |= {word for word in content.decode(errors="replace").split("\0") if word}
    return text_hash("\n".join(sorted(parts))), " ".join(sorted(compilers))
