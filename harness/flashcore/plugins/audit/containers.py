"""Finds device code in files: yields each cubin, each PTX text and each unreadable part, with its place.

The format is determined by the content. Nothing is imported, unpickled or executed. Large files are mapped, members of
zip archives are copied to a temporary file, and the decompressed size is limited.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from flashcore.errors import UsageError
from flashcore.model.causes import Cause
from flashcore.plugins.audit.causes import Damaged, NeedsPackage, NoDeviceCode, TooLarge
from flashcore.readers import cubin

MOST_CODE = 1 << 28  # bytes of one cubin or PTX text; cuBLAS has 60 MB
_MOST_BYTES, _MOST_GROWTH = 1 << 29, 64  # total decompressed size: bytes, plus a multiple of the file's size
_MOST_NESTED = 4  # archives in archives
_ERRORS = (
    struct.error,
    ValueError,
    ArithmeticError,
    LookupError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
)
_ELF, _FATBIN, _ZIP = b"\x7fELF", b"\x50\xed\x55\xba", b"PK\x03\x04"
_AR, _THIN = b"!<arch>\n", b"!<thin>\n"
_MAGICS = (_ELF, _FATBIN, _ZIP, _AR, _THIN)
_LINKED, _RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"
_PROGRAM_DATA, _RUNS = 1, 4  # a section's kind, and its flag for host code
_CUDA_MACHINE = 190
_HEADER, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS = {1: "ptx", 2: "cubin", 8: "lto"}  # of entries
_LZ4, _ZSTD, _SPECIFIC, _FAMILY = 0x2000, 0x8000, 0x100000, 0x200000  # flags of entries
_TARGET = re.compile(rb"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_COMMAND = re.compile(rb"-arch[ =](sm_\d+[af]?)")


class _Mapped(mmap.mmap):
    """A mapped file, which ``zipfile`` can read."""

    def seekable(self) -> bool:
        return True


Buffer = bytes | _Mapped


@dataclass(frozen=True, slots=True)
class Code:
    """Device code.

    Args:
        file: the path of its library, object or cubin, continued within archives.
        content: the bytes, or why they cannot be read.
        place: the section's offset or the member's name; empty for the whole file.
        kind: ``ptx`` and ``lto`` (intermediate code) are compiled at run time or by the linker.
        arch: ``sm_90a``.
    """

    file: str
    content: bytes | Cause
    place: str = ""
    kind: str = "cubin"
    arch: str = ""


@dataclass(slots=True)
class _Room:
    """The number of bytes that may still be decompressed."""

    left: int

    def refusal(self, size: int, most: int = MOST_CODE) -> Cause | None:
        """The cause if ``size`` more bytes exceed a limit; else takes them from the rest."""
        if size > min(most, self.left):
            return TooLarge(size, min(most, self.left))
        self.left -= size
        return None


def read(path: Path) -> Iterator[Code]:
    """The device code of a file or folder.

    Raises:
        UsageError: it does not exist.
    """
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            # In a compiler's cache, each cubin was compiled from the PTX next to it.
            if not (file.suffix == ".ptx" and file.with_suffix(".cubin").is_file()):
                yield from _file(file, file.relative_to(path).as_posix())
    elif path.is_file():
        yield from _file(path, path.name, listed=True)
    else:
        raise UsageError(f"{path}: expected a file or folder with CUDA code, found neither")


def _file(path: Path, name: str, *, listed: bool = False) -> Iterator[Code]:
    """The code of a file.

    Args:
        listed: whether to report a file without device code.
    """
    name = name.encode(errors="replace").decode()  # records are UTF-8
    try:
        with _mapped(path) as data:
            codes, room = 0, _Room(_MOST_BYTES + _MOST_GROWTH * len(data))
            for codes, code in enumerate(_content(data, name, path.parent, room), 1):  # noqa: B007
                yield code
            if listed and not codes:
                yield Code(name, NoDeviceCode())
    except _ERRORS as error:
        yield Code(name, Damaged(str(error)))


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    with path.open("rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            yield b""
            return
        with _Mapped(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _content(data: Buffer, name: str, folder: Path | None, room: _Room, depth: int = 0) -> Iterator[Code]:
    """The code in a file's content.

    Args:
        folder: the folder of a thin archive's members; ``None`` within another archive.
    """
    magic = data[:8]
    if depth > _MOST_NESTED:
        raise ValueError(f"more than {_MOST_NESTED} archives within each other")
    if magic.startswith(_ELF) and data[18:20] == _CUDA_MACHINE.to_bytes(2, "little"):
        yield Code(name, room.refusal(len(data)) or data[:], arch=arch_of(data))
    elif magic.startswith(_ELF):
        yield from _elf(data, name, room)
    elif magic.startswith(_FATBIN):
        yield from _fatbins(data, name, "", 0, len(data), room)
    elif magic.startswith(_ZIP):
        yield from _zip(data, name, room, depth)
    elif magic in (_AR, _THIN):
        yield from _archive(data, name, folder, room, depth)
    elif target := _TARGET.search(data[: 1 << 16]):
        yield Code(name, room.refusal(len(data)) or data[:], "", "ptx", target[1].decode())


def _elf(data: Buffer, name: str, room: _Room) -> Iterator[Code]:
    """The fatbins in a host program's data sections, since some libraries have no separate section for them."""
    linked = False
    # Relocatable code next to linked code is part of it, and its resources are not final.
    for section in sorted(cubin.sections_of(data), key=lambda section: section.name == _RELOCATABLE):
        if (
            section.kind == _PROGRAM_DATA
            and not section.flags & _RUNS
            and not (linked and section.name == _RELOCATABLE)
        ):
            for code in _fatbins(data, name, section.name, section.offset, section.offset + section.size, room):
                linked |= code.kind == "cubin" and section.name == _LINKED
                yield code


def _fatbins(data: Buffer, name: str, section: str, at: int, end: int, room: _Room) -> Iterator[Code]:
    """The entries of the fatbins between two offsets; padding separates fatbins."""
    while 0 <= (at := data.find(_FATBIN, at, end)) <= end - _HEADER.size:
        _, version, header, size = _HEADER.unpack_from(data, at)
        if (version, header) != (1, _HEADER.size):
            at += 1  # the same number in other data
            continue
        entry, at = at + header, at + header + size
        if at > end:
            yield Code(name, Damaged(f"{size} bytes, of which {end - entry} left"), f"{section}+{entry:#x}")
            return
        while entry + _ENTRY.size <= at:
            place = f"{section}+{entry:#x}"
            kind, _, header, size, packed, _, _, _, sm, _, _, flags, _, unpacked = _ENTRY.unpack_from(data, entry)
            start, entry = entry + header, entry + header + size
            if entry > at or header < _ENTRY.size or packed > size:
                yield Code(name, Damaged(f"an entry of {size} bytes that would be longer"), place)
                break
            arch = f"sm_{sm}" + ("a" if flags & _SPECIFIC else "f" if flags & _FAMILY else "")
            content: bytes | Cause = b""
            if kind not in _KINDS:
                content = Damaged(f"an entry of the unknown kind {kind}")
            elif _KINDS[kind] != "lto":
                code = data[start : start + (packed or size)]
                content = room.refusal(max(size, unpacked)) or _unpacked(code, flags, unpacked)
            yield Code(name, content, place, _KINDS.get(kind, "cubin"), arch)


def _unpacked(data: bytes, flags: int, size: int) -> bytes | Cause:
    """An entry's decompressed content, or the cause of a failure."""
    if not flags & (_LZ4 | _ZSTD):
        return data
    try:
        if flags & _LZ4:
            import lz4.block

            return bytes(lz4.block.decompress(data, uncompressed_size=size))
        import zstandard

        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data) as reader:
            content = bytes(reader.read(size + 1))
    except ModuleNotFoundError as error:
        return NeedsPackage(str(error.name).partition(".")[0])
    except Exception as error:  # each library has errors of its own
        return Damaged(str(error))
    return content if len(content) == size else Damaged(f"{len(content)} bytes, expected {size}")


def _zip(data: Buffer, name: str, room: _Room, depth: int) -> Iterator[Code]:
    with zipfile.ZipFile(cast("IO[bytes]", data) if isinstance(data, _Mapped) else io.BytesIO(data)) as archive:
        for info in archive.infolist():
            file = f"{name}!{info.filename}"
            try:
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"compression method {info.compress_type}")
                with archive.open(info) as member:
                    first = member.read(8)
                    if not (first.startswith(_MAGICS) or info.filename.endswith(".ptx")):
                        continue
                    if refusal := room.refusal(info.file_size, room.left):
                        yield Code(file, refusal)
                        continue
                    with tempfile.NamedTemporaryFile(prefix="flashcore-audit-") as copy:
                        copy.write(first)
                        shutil.copyfileobj(member, copy)
                        copy.flush()
                        with _mapped(Path(copy.name)) as content:
                            yield from _content(content, file, None, room, depth + 1)
            except _ERRORS as error:
                yield Code(file, Damaged(str(error)))


def _archive(data: Buffer, name: str, folder: Path | None, room: _Room, depth: int) -> Iterator[Code]:
    """The members of a static library; a thin one's are files next to it."""
    at, long_names = len(_AR), b""
    while at + 60 <= len(data):
        header = data[at : at + 60]
        if header[58:] != b"`\n" or b"-" in header[48:]:
            raise ValueError(f"expected a member's header at {at}")
        member, size = header[:16].decode("latin-1").rstrip(), int(header[48:58])
        start, at = at + 60, at + 60 + size + size % 2
        if member in ("/", "/SYM64/"):
            continue
        if member == "//":
            long_names = data[start : start + size]
            continue
        if member[0] == "/":
            begin = int(member[1:])
            member = long_names[begin : long_names.index(b"\n", begin)].decode("utf-8", "replace")
        member = member.rstrip("/")
        content: Buffer | Path = data[start : start + size]
        if data[:8] == _THIN:
            at, content = start, Path(folder or os.devnull, member)
        codes = _member(content, name, room, depth)
        yield from (replace(code, place=f"{member} {code.place}".strip()) for code in codes)


def _member(content: Buffer | Path, file: str, room: _Room, depth: int) -> Iterator[Code]:
    try:
        if not isinstance(content, Path):
            yield from _content(content, file, None, room, depth + 1)
        elif not content.is_file() or room.refusal(content.stat().st_size, room.left):
            raise ValueError(f"expected the file {content.name} next to the thin archive")
        else:
            with _mapped(content) as data:
                yield from _content(data, file, None, room, depth + 1)
    except _ERRORS as error:
        yield Code(file, Damaged(str(error)))


def arch_of(data: Buffer) -> str:
    """A cubin's arch, from the compiler's note of its command line, else from the ELF header."""
    flags = struct.unpack_from("<I", data, 48)[0]
    newer = data[8] >= 8
    number = flags >> 8 & 0xFF if newer else flags & 0xFF
    for section in cubin.sections_of(data):
        if section.name == ".note.nv.tkinfo" and (match := _COMMAND.search(section.content(data))):
            return match[1].decode()
    return f"sm_{number}{'a' if not newer and flags & 0x800 else ''}"
