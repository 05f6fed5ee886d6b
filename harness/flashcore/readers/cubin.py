"""Reads a cubin's kernels, their resources, and the hash of their code, in pure Python.

A cubin is an ELF file. The compiler writes a kernel's attributes to ``.nv.info`` (for all kernels) and
``.nv.info.<kernel>``. The attribute numbers used here were checked against ``ptxas -v`` and
``cuobjdump -res-usage``.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.model.cause import Cause
from flashcore.model.causes import STACK_UNKNOWN, NotLinked
from flashcore.model.record import Dim3

# EIATTR numbers. The frame is a function's own; the stack is that of a kernel with all functions that it calls.
_REGISTERS, _FRAME, _STACK, _MAX_THREADS, _BARRIERS, _PARAMETERS = 0x2F, 0x11, 0x12, 0x05, 0x4C, 0x19
_CLUSTER, _MAX_CLUSTER, _BLOCK, _NOTES = 0x3D, 0x3F, 0x10, 0x55
_PARAMETER, _LARGE_PARAMETER = 0x17, 0x45  # the latter where all take more than 4 KB
_MOST_ATTRIBUTES = 1 << 24  # bytes; cuBLAS has 24 KB
#: The parts of ``.nv.callgraph``, each after a row with its number: callers and functions, functions and their types,
#: callers and types of functions that they call by pointer.
_PARTS, _CALLS, _TYPES, _POINTERS = 0xFFFFFFFC, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_UNKNOWN = 0xFFFFFFFF  # a stack, by the linker
_HASH = re.compile("_[0-9a-f]{8}")  # of a path, in a symbol
_SYMBOLS, _NOBITS = 2, 8  # kinds of sections; the latter have no content
_SPILL = 1  # the kind of a note about a spill or fill
#: The opcode (low 12 bits of an instruction) from sm_70 on, and bytes by the 3-bit access width.
_STL, _LDL = 0x387, 0x983
#: Instructions that add a constant to the stack pointer (R1), and those that add a register.
_ADD, _ADD_REGISTER = (0x810, 0x836), (0x210, 0x224, 0x824)
_STACK_POINTER = b"\1\1"  # as destination and first operand
_WIDTHS = (1, 1, 2, 2, 4, 8, 16)
#: Bytes per block that the system reserves; from sm_90 on ``.nv.shared.<kernel>`` includes them.
RESERVED_SMEM = 1024


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's resources and launch bounds.

    ``registers`` and ``stack_bytes`` are per thread, ``static_smem`` is in bytes per block without the system's
    reserve, ``barriers`` are named barriers. They include the functions that the kernel calls; where that is unknown,
    they are ``None``, and ``missing`` is the cause. ``max_threads`` (per block), ``max_cluster`` (in blocks),
    ``block`` and ``cluster`` are launch bounds of the source, each ``None`` if unset.

    ``spills`` are the bytes per thread that it stores and reloads, if ptxas lists them (from 12.6 and sm_70 on). They
    are ``None`` if it lists none, or not all (``is_incomplete``): functions that the kernel may call also use local
    memory, for example to save registers. ``code`` is the hash of its instructions,
    ``parameters`` the bytes of each parameter.
    """

    name: str
    registers: int | None
    stack_bytes: int | None
    static_smem: int | None
    barriers: int | None
    parameter_bytes: int
    max_threads: int | None = None
    max_cluster: int | None = None
    block: Dim3 | None = None  # __block_size__
    cluster: Dim3 | None = None  # __cluster_dims__
    spills: tuple[int, int] | None = None
    is_incomplete: bool = False
    code_bytes: int = 0
    constant_bytes: int = 0
    code: str = field(default="", compare=False)
    parameters: tuple[int, ...] = ()
    missing: Cause | None = None

    def resource(self, name: str) -> tuple[int | None, Cause | str]:
        """The value of a field, and the cause if it has none."""
        value: int | None = getattr(self, name)
        return value, (value is None and self.missing) or ""

    @property
    def demands(self) -> dict[str, int]:
        """The launch bounds of its source, by fact."""
        most = {"max_threads": self.max_threads, "max_cluster": self.max_cluster}
        only = {"required_block": self.block, "required_cluster": self.cluster}
        sizes = {
            f"{name}_{axis}": n for name, dims in only.items() if dims for axis, n in zip("xyz", dims, strict=True)
        }
        return {name: n for name, n in most.items() if n is not None} | sizes


@dataclass(frozen=True, slots=True)
class Cubin:
    """A cubin's kernels, and the hash of its code without debug data, paths and names.

    ``separate`` names separately compiled functions, which are in no kernel's code."""

    kernels: tuple[Kernel, ...]
    code: str
    separate: tuple[str, ...] = ()


class Section(NamedTuple):
    """A section of an ELF file."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    flags: int
    info: int

    def content(self, data: bytes | mmap.mmap) -> bytes:
        """Its bytes in the file ``data``; none if it only reserves memory."""
        return data[self.offset : self.offset + self.size] if self.kind != _NOBITS else b""


def read(path: Path, arch: str) -> Cubin:
    """Reads a cubin of ``arch`` (such as ``sm_90a``).

    Raises:
        FlashcoreError: it is not a cubin, or truncated.
    """
    return parse(path.read_bytes(), arch, str(path))


def parse(data: bytes, arch: str, name: str) -> Cubin:
    """Reads a cubin's bytes; ``name`` is its name in error messages.

    Raises:
        FlashcoreError: see :func:`read`.
    """
    try:
        return _read(data, arch)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise FlashcoreError(
            f"{name}: expected a 64-bit CUDA ELF file, found {data[:4]!r} ({error})\n  hint: make clean build"
        ) from error


class _Image:
    """The tables of a cubin's bytes.

    Attributes:
        names: the kernels.
        constants: the bytes of each kernel's constant banks.
        codes: function → its machine code; those that are no kernels are ``separate``.
        moves: function → see :func:`_moves`; from sm_70 on.
    """

    def __init__(self, data: bytes, arch: str) -> None:
        self.data, self.generation = data, int(arch[3:].rstrip("af"))
        self.sections = sections_of(data)
        self.by_name = {s.name: s for s in self.sections}
        self.symbols = [*symbols_of(data, self.sections)]
        tables: dict[int, dict[str, int]] = {_REGISTERS: {}, _FRAME: {}, _STACK: {}}
        self.registers, self.frames, self.stacks = tables.values()
        for attribute, payload in _attributes(data, self.by_name.get(".nv.info")):
            if attribute in tables and len(payload) >= 8:
                index, value = struct.unpack_from("<II", payload)
                tables[attribute][self.symbols[index].name] = value
        prefix = ".nv.constant0."
        self.names = [s.name.removeprefix(prefix) for s in self.sections if s.name.startswith(prefix)]
        self.names.sort(key=lambda name: _HASH.sub("", name))  # else the folder of the build would order namesakes
        self.constants = Counter[str]()
        for section in self.sections:
            if section.name.startswith(".nv.constant"):
                self.constants[[*section.name.split(".", 3), ""][3]] += section.size
        texts = (s for s in self.sections if s.name.startswith(".text."))
        self.codes = {s.name.removeprefix(".text."): s.content(data) for s in texts}
        self.separate = self.codes.keys() - {*self.names}
        self.moves = {name: _moves(code) for name, code in self.codes.items()} if self.generation >= 70 else {}

    def local_memory(self) -> dict[str, set[int]]:
        """Where functions inside a section use local memory, by section.

        Raises:
            ValueError: functions overlap.
        """
        uses = defaultdict[str, set[int]](set)
        code_of = {f".text.{name}": name for name in self.names}
        room = 4 * len(self.data)
        for function in (s for s in self.symbols if s.info & 0xF == 2 and 0 < s.section < len(self.sections)):
            section = self.sections[function.section]
            if code_of.get(section.name) == function.name:
                continue
            room -= function.size
            if room < 0:
                raise ValueError("functions overlap")
            for at in range(function.start, function.start + function.size, 16):
                opcode = int.from_bytes(self.data[section.offset + at : section.offset + at + 2], "little") & 0xFFF
                # Instructions before sm_70 have another layout, in which these bits are registers.
                if opcode in (_STL, _LDL) if self.generation >= 70 else self.frames.get(function.name):
                    uses[section.name].add(at)
        return uses

    def kernel(self, name: str, spilling: set[int] | None, *, is_bounded: bool) -> Kernel:
        """A kernel of a linked cubin.

        Args:
            spilling: where functions in its section use local memory; ``None``: its calls do, beyond the section.
            is_bounded: whether the stack of what it calls is known, as far as calls tell.
        """
        attributes = [*_attributes(self.data, self.by_name.get(f".nv.info.{name}"))]
        info = dict(attributes)
        shared, text = (self.by_name.get(f".{kind}.{name}") for kind in ("nv.shared", "text"))
        reserved = RESERVED_SMEM if self.generation >= 90 else 0
        threads, most = _sizes(info.get(_MAX_THREADS)), info.get(_MAX_CLUSTER)
        notes = b"".join(payload for number, payload in attributes if number == _NOTES)
        code = self.codes.get(name, b"")
        is_incomplete = spilling is None or bool(spilling - {offset for _, offset in rows("<II", notes)})
        stack = self.stacks.get(name, self.frames.get(name, 0))
        is_unknown = stack == _UNKNOWN or not is_bounded or (self.moves.get(name) or 0) > stack
        return Kernel(
            name=name,
            # Some cubins have registers only in the section's info.
            registers=self.registers.get(name, text.info >> 24 if text else 0),
            stack_bytes=None if is_unknown else stack,
            static_smem=max(shared.size - reserved, 0) if shared else 0,
            # ptxas 13 writes barriers to an attribute, ptxas 12 to the flags of the code section.
            barriers=max(int.from_bytes(info.get(_BARRIERS, b"")[:1]), text.flags >> 20 & 0x7F if text else 0),
            parameter_bytes=struct.unpack("<H", info[_PARAMETERS][:2])[0] if _PARAMETERS in info else 0,
            max_threads=threads and math.prod(threads),
            max_cluster=int.from_bytes(most[:4], "little") if most else None,
            block=_sizes(info.get(_BLOCK)),
            cluster=_sizes(info.get(_CLUSTER)),
            spills=_spills(code, notes) if notes and not is_incomplete else None,
            is_incomplete=is_incomplete,
            code_bytes=len(code),
            constant_bytes=self.constants[name],
            code=hashlib.sha256(code).hexdigest(),
            parameters=_parameters(attributes),
            missing=STACK_UNKNOWN() if is_unknown else None,
        )


def _read(data: bytes, arch: str) -> Cubin:
    image = _Image(data, arch)
    uses, names = image.local_memory(), image.names
    graph = image.by_name.get(".nv.callgraph")
    callers = _callers(graph.content(data), image.symbols) if graph else {f: {*names} for f in image.separate}
    unlinked = set[str]()
    if is_relocatable(data):
        unlinked = unlinked.union(*callers.values()) if graph else {*names}
    incomplete = unlinked | _reaching(callers, {name for name in image.separate if uses[f".text.{name}"]})
    unbounded = _reaching(callers, {"", *(name for name, moved in image.moves.items() if moved is None)})
    kernels = [
        image.kernel(n, None if n in incomplete else uses[f".text.{n}"], is_bounded=n not in unbounded) for n in names
    ]
    unknown: dict[str, Any] = dict.fromkeys(("registers", "stack_bytes", "static_smem", "barriers"))
    kernels = [replace(k, **unknown, missing=NotLinked()) if k.name in unlinked else k for k in kernels]
    return Cubin(tuple(kernels), _code_hash(data, image.sections), tuple(sorted(image.separate)))


def _callers(graph: bytes, symbols: Sequence[Symbol]) -> dict[str, set[str]]:
    """Function → the functions that may call it. A call by pointer goes through a type, and to the function ``""`` if
    none has that type."""
    callers = defaultdict[str, set[str]](set)
    pointers, listed, part = set(), set(), 0
    for first, second in rows("<II", graph):
        name, kind = symbols[first].name, f"type {second}"
        if second >= _PARTS:
            part = second
        elif part == _CALLS:
            callers[symbols[second].name].add(name)
        elif part == _TYPES:
            callers[name].add(kind)
            listed.add(kind)
        elif part == _POINTERS:
            callers[kind].add(name)
            pointers.add(kind)
    callers[""] |= pointers - listed
    return callers


def _reaching(callers: Mapping[str, Collection[str]], functions: Iterable[str]) -> set[str]:
    """The functions, and those that call them, directly or not."""
    reached = {*functions}
    pending = [*reached]
    while pending:
        new = {*callers.get(pending.pop(), ())} - reached
        reached |= new
        pending += new
    return reached


def _moves(code: bytes) -> int | None:
    """The bytes by which the code moves the stack pointer in all; ``None`` if a register has them.

    This is more than the frame if functions within the code take space of their own, as recursive ones do."""
    total, at = 0, -1
    while (at := code.find(_STACK_POINTER, at + 1)) >= 0:
        if at % 16 != 2:
            continue
        opcode = int.from_bytes(code[at - 2 : at], "little") & 0xFFF
        if opcode in _ADD_REGISTER:
            return None
        if opcode in _ADD:
            total -= min(int.from_bytes(code[at + 2 : at + 6], "little", signed=True), 0)
    return total


def is_relocatable(data: bytes) -> bool:
    """Whether an ELF file is not linked."""
    return data[:5] == b"\x7fELF\x02" and data[16:18] == b"\1\0"


def code_of(data: bytes) -> str:
    """The hash of a cubin's code, equal to :attr:`Cubin.code`.

    Raises:
        ValueError: it is not a cubin.
    """
    return _code_hash(data, sections_of(data))


def _spills(code: bytes, notes: bytes) -> tuple[int, int] | None:
    """The bytes of the spills and fills that the notes list by offset; ``None`` if a note is anything else."""
    totals = {_STL: 0, _LDL: 0}
    try:
        for kind, offset in struct.iter_unpack("<II", notes):
            low, high = struct.unpack_from("<QQ", code, offset)
            if kind != _SPILL:
                return None
            totals[low & 0xFFF] += _WIDTHS[high >> 9 & 7]
    except (struct.error, LookupError):
        return None
    return totals[_STL], totals[_LDL]


def _parameters(attributes: list[tuple[int, bytes]]) -> tuple[int, ...]:
    sizes = {}
    for number, payload in attributes:
        if number in (_PARAMETER, _LARGE_PARAMETER):
            _, ordinal, _, size = struct.unpack("<IHHI", payload[:12])
            sizes[ordinal] = size >> 18 if number == _PARAMETER else size & 0xFFFFFF  # flags above
    return tuple(size for _, size in sorted(sizes.items()))


def _sizes(payload: bytes | None) -> Dim3 | None:
    return struct.unpack("<III", payload[:12]) if payload else None


def sections_of(data: bytes | mmap.mmap) -> list[Section]:
    """The sections of a 64-bit ELF file.

    Raises:
        ValueError: it is not one, or its sections overlap.
    """
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF header")
    offset = struct.unpack_from("<Q", data, 0x28)[0]
    count, names_index = struct.unpack_from("<HH", data, 0x3C)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * i) for i in range(count)]
    names_at = raw[names_index][4]
    sections = []
    room = 4 * len(data)  # bounds the work on a file whose sections and names overlap
    for r in raw:
        sections.append(Section(text_at(data, names_at + r[0]), r[1], r[4], r[5], r[6], r[2], r[7]))
        room -= len(sections[-1].name) + (r[5] if r[1] != _NOBITS else 0)
        if room < 0:
            raise ValueError("sections overlap")
    return sections


def rows(layout: str, content: bytes) -> Iterator[tuple[Any, ...]]:
    """The complete rows of a table whose rows have this layout."""
    size = struct.calcsize(layout)
    return struct.iter_unpack(layout, content[: len(content) // size * size])


def text_at(data: bytes | mmap.mmap, at: int) -> str:
    """The null-terminated text at an offset.

    Raises:
        ValueError: it has no end.
    """
    end = data.find(b"\0", at)
    if end < 0:
        raise ValueError(f"no name at {at}")
    return data[at:end].decode()


def names_source(data: bytes, name: str, size: int) -> bool:
    """Whether line tables (DWARF 2 to 4) list a source file of this name and size in bytes."""
    # LEB128: the folder, the time, then the size
    numbers = rb"\0(?:[\x80-\xff]*[\x00-\x7f]){2}([\x80-\xff]*[\x00-\x7f])"
    entries = re.finditer(re.escape(name.encode()) + numbers, data)
    return any(size == sum((byte & 0x7F) << 7 * at for at, byte in enumerate(entry[1])) for entry in entries)


class Symbol(NamedTuple):
    """A symbol of an ELF file; ``section`` is an index, 0 if it is defined elsewhere."""

    name: str
    info: int
    section: int
    start: int
    size: int


def symbols_of(data: bytes, sections: Sequence[Section]) -> Iterator[Symbol]:
    """The symbols of an ELF file, table by table.

    Raises:
        ValueError: their names overlap.
    """
    room = 4 * len(data)
    for table in (s for s in sections if s.kind == _SYMBOLS):
        for name, *fields in rows("<IBxHQQ", table.content(data)):
            symbol = Symbol(text_at(data, sections[table.link].offset + name), *fields)
            room -= len(symbol.name)
            if room < 0:
                raise ValueError("names overlap")
            yield symbol


def _attributes(data: bytes, section: Section | None) -> Iterator[tuple[int, bytes]]:
    """(number, payload) of each attribute; a payload's length depends on the format byte."""
    if section is None:
        return
    if section.size > _MOST_ATTRIBUTES:
        raise ValueError(f"{section.size} bytes of attributes")
    at, end = section.offset, section.offset + section.size
    while at + 4 <= end:
        form, number, value = struct.unpack_from("<BBH", data, at)
        if form == 4:  # `value` is the payload's length
            yield number, data[at + 4 : at + 4 + value]
            at += 4 + value
        else:  # `value` is the payload, of up to two bytes
            yield number, struct.pack("<H", value)
            at += 4


def _code_hash(data: bytes, sections: list[Section]) -> str:
    """The hash of code, attributes and constants. It omits names and sorts the parts, so that renaming a kernel or
    moving it within its file does not change the hash."""
    parts = sorted(
        hashlib.sha256(s.content(data)).digest()
        for s in sections
        if s.name.startswith((".text.", ".nv.info", ".nv.constant"))
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()
