"""Reads a candidate's cubins as data, and refuses what a kernel may not bring: state, output, allocation, launches,
a wall clock, or anything that this module does not understand.

It cannot tell where a kernel's stores go; the judge assumes the worst of them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.model.groups import grouped, picked
from flashcore.readers import cubin
from flashcore.readers.cubin import Section, Symbol
from flashcore_judge.verdict import untrusted

#: A section's name, kind and flags (writable, code, compressed), in hexadecimal. Only variables and shared memory have
#: no content in the file (kind 8); compilers do not use CUDA's own kinds of variables any more.
_KIND, _FLAGS = r" (?!8 |7000000[78a] )\w+ ", 0x805
_SECTIONS = re.compile(
    rf"\.text\..*{_KIND}[04]|\.nv\.global(?: 8 |{_KIND})[01]|\.nv\.global\.init{_KIND}[01]"
    rf"|\.nv\.shared\.reserved\..* 8 [01]|\.nv\.shared(?:[._].*)?{_KIND}[01]|\.rela?\..* [49] 0"
    r"|(?:|\.(?:shstrtab|strtab|symtab|symtab_shndx|debug_.*|nv_debug.*|note\.nv\..*"
    rf"|nv\.(?:info|compat|callgraph|prototype|constant\d|rel\.action|host|tileir\.debug)(?:[._].*)?)){_KIND}0"
)
#: Sections that the driver translates again, from this architecture on; those whose relocations change no code or data.
_OF_BLACKWELL, _TRANSLATED = re.compile(r"\.nv\.(?:capmerc\.text(?:[._].*)? \w+ 0|merc(?:[._].*)? \w+ [01])"), 100
_UNUSED = re.compile(r"\.debug_|\.nv_debug|\.nv\.tileir\.debug|\.nv\.merc")
_VARIABLES, _TABLES = ".nv.global", ".nv.global.init"
_STATE = {
    _VARIABLES: "global variables, which outlive a call: pass a workspace",
    _TABLES: "initialized global variables, which outlive a call: use __constant__",
}
_GLOBAL_OBJECT, _NAME = 0x11, re.compile(r"[\w$.]*", re.ASCII)
#: SHA-256 of the tables of CUDA's sine and cosine, which compilers put among initialized variables; their most bytes.
_MATH, _MOST_TABLE = (
    {
        "af58a7804afd16e4e7a715bd29412e82374ac0eb2196ae5f00fbd5835af8006d",  # __cudart_i2opi_f
        "bf6a9587812432cf5649f28013165faa5a19d2ad0f66fd69cbf13096c2ea4263",  # __cudart_sin_cos_coeffs
        "7ede62875c004cc8c2847b487cb377f75c153593f45bab10b272128e31690cde",  # __cudart_i2opi_d
    },
    296,
)
_RESERVED = ".nv.reservedSmem."
#: Relocations: 64-bit addresses in constants, and the parts of addresses in instructions.
_RELOCATIONS = {0x02, 0x38, 0x39, 0x3A, 0x3E, 0x3F}
#: Where the type is in a row of sections of the kinds RELA and REL.
_RELOCATED = {4: "<8xI12x", 9: "<8xI4x"}
#: Bytes of a program's header, if there is one, and of a section's.
_SIZES = {(56, 64), (0, 64)}
#: Opcodes that read a special register (S2R, CS2R, S2UR), whose number is in bits 72 to 79, and %globaltimer's numbers.
_READS, _TIMERS = {0x919, 0x805, 0x9C3}, {0x52, 0x53, 0x54}
#: Compilers make a few dozen; reading takes their product.
_MOST_SECTIONS, _MOST_SYMBOLS = 4096, 100_000
_FACTS = ("registers", "stack_bytes", "static_smem", "spills", "code_bytes")


class Inspected(NamedTuple):
    """A cubin's static facts by kernel, the global variables to be written before each call, and why it is refused."""

    reasons: list[str]
    kernels: list[dict[str, Any]]
    state: list[str]


def inspect(file: str, data: bytes, arch: str) -> Inspected:
    """Inspects a cubin."""
    name = untrusted(file)
    try:
        sections = cubin.sections_of(data)
        symbols = [*itertools.islice(cubin.symbols_of(data, sections), _MOST_SYMBOLS + 1)]
        is_usual = len({s.name for s in sections}) == len(sections) <= _MOST_SECTIONS and len(symbols) <= _MOST_SYMBOLS
        if not is_usual or struct.unpack_from("<H2xH", data, 0x36) not in _SIZES:
            limits = f"at most {_MOST_SECTIONS} sections, each with a name of its own, and {_MOST_SYMBOLS} symbols"
            raise ValueError(f"headers of the usual sizes, {limits}")
        inside = grouped((sections[s.section].name, s) for s in symbols if 0 < s.section < len(sections))
        count = Counter(s.name for s in symbols)
        variables = [
            s
            for s in inside.get(_VARIABLES, ())
            if s.info == _GLOBAL_OBJECT and count[s.name] == 1 and _NAME.fullmatch(s.name)
        ]
        tables = [s for s in inside.get(_TABLES, ()) if _is_math(data, sections[s.section].offset + s.start, s.size)]
        reasons = dict.fromkeys(_reasons(data, arch, sections, symbols, [*variables, *tables]))
        kernels = cubin.parse(data, arch, name).kernels
    except (FlashcoreError, ValueError, struct.error, IndexError, OverflowError) as error:
        return Inspected([f"{name}: expected a cubin of {arch}: {error if data else 'no such file'}"], [], [])
    facts = [{"kernel": untrusted(kernel.name)} | picked(kernel, *_FACTS) for kernel in kernels]
    return Inspected([f"{name}: {reason}" for reason in reasons], facts, [s.name for s in variables])


def _reasons(
    data: bytes, arch: str, sections: Sequence[Section], symbols: Sequence[Symbol], understood: Sequence[Symbol]
) -> Iterator[str]:
    of_shared = {s.name.replace(".text.", ".nv.shared.", 1) for s in sections if s.name.startswith(".text.")}
    is_translated = int(re.sub(r"\D", "", arch)) >= _TRANSLATED
    for number, section in enumerate(sections):
        name, content = section.name, section.content(data)
        if name in _STATE and (hidden := _hidden(section.size, [s for s in understood if s.section == number])):
            yield f"{hidden} bytes of {_STATE[name]}"
        shown = ".nv.shared.reserved.0" if name in of_shared else name
        text = f"{shown} {section.kind:x} {section.flags & _FLAGS:x}"
        if not (_SECTIONS.fullmatch(text) or (is_translated and _OF_BLACKWELL.fullmatch(text))):
            yield f"the section {name} is not understood (kind {section.kind:#x}, flags {section.flags:#x})"
        code = content if name.startswith(".text.") else b""
        if any(word & 0xFFF in _READS and register in _TIMERS for word, register in cubin.rows("<H7xB6x", code)):
            yield "it reads %globaltimer"
        if section.kind in _RELOCATED and not _UNUSED.match(sections[section.info].name):
            for (kind,) in {*cubin.rows(_RELOCATED[section.kind], content)}:
                if kind not in _RELOCATIONS:
                    yield f"a relocation of type {kind:#x} is not understood"
    for symbol in symbols:
        is_elsewhere = symbol.section == 0 and symbol.name and not symbol.name.startswith(_RESERVED)
        if is_elsewhere or symbol.section >= len(sections):
            yield f"it uses what it does not have, as launches, output and allocation do: {symbol.name}"


def _hidden(size: int, symbols: Sequence[Symbol]) -> int:
    """Bytes of a section that none of these symbols covers."""
    hidden = end = 0
    for symbol in sorted(symbols, key=lambda s: s.start):
        hidden += max(symbol.start - end, 0)
        end = max(end, symbol.start + symbol.size)
    return hidden + max(size - end, 0)


def _is_math(data: bytes, at: int, size: int) -> bool:
    return size <= _MOST_TABLE and hashlib.sha256(data[at : at + size]).hexdigest() in _MATH
