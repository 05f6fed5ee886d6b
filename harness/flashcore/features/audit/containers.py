"""Finds device code in files: yields each cubin, each PTX text and each unreadable part, with its place.

The format is determined by the content. Nothing is imported, unpickled or executed. Large files are mapped, members of
archives are copied to a temporary file, and the decompressed size is limited.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import mmap
import os
import re
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from flashcore.errors import UsageError
from flashcore.features.audit.causes import DAMAGED, NEEDS_PACKAGE, NO_DEVICE_CODE, NOT_COMPILED, NOT_READ, TOO_LARGE
from flashcore.model.cause import Cause
from flashcore.readers import cubin

MOST_CODE = 1 << 28  # bytes of one cubin or PTX text; cuBLAS has 60 MB
_MOST_BYTES, _MOST_GROWTH = 1 << 29, 64  # total decompressed size: bytes, plus a multiple of the file's size
_MOST_NESTED = 4  # archives in archives
_ELF, _FATBIN, _ZIP = b"\x7fELF", b"\x50\xed\x55\xba", b"PK\x03\x04"
_AR, _THIN = b"!<arch>\n", b"!<thin>\n"
_TAR, _TAR_AT, _BLOCK = b"ustar", 257, 512
_WINDOWS = (b"MZ", b"\x64\x86")  # programs and objects
_OTHERS = {
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"MSCF": "a cabinet",
    b"\xed\xab\xee\xdb": "an RPM package",
    b"070701": "a cpio archive",
    b"hsqs": "a squashfs image",
    b"\x04\x22\x4d\x18": "an lz4 file",
}
_EMBEDDED = re.compile(rb"\x50\xed\x55\xba|\x7fELF\x02")
_LINKED, _RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"
_NOBITS = 8  # the kind of a section without content
_CUDA_MACHINE = (190).to_bytes(2, "little")
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
class DeviceCode:
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
            return TOO_LARGE(size, min(most, self.left))
        self.left -= size
        return None


def read(path: Path) -> Iterator[DeviceCode]:
    """The device code of a file or folder.

    Raises:
        UsageError: it does not exist.
    """
    if path.is_dir():
        files, is_empty = sorted(p for p in path.rglob("*") if p.is_file()), True
        for file in files:
            # In a compiler's cache, each cubin was compiled from the PTX next to it.
            if not (file.suffix == ".ptx" and file.with_suffix(".cubin").is_file()):
                for code in _file(file, file.relative_to(path).as_posix()):
                    yield code
                    is_empty = False
        if is_empty:
            source = next((file for file in files if file.suffix == ".cu"), None)
            yield DeviceCode(path.resolve().name, NOT_COMPILED(f"{source.parent}/*.cu") if source else NO_DEVICE_CODE())
    elif path.is_file():
        yield from _file(path, path.name, listed=True)
    else:
        raise UsageError(f"{path}: expected a file or folder with CUDA code, found neither")


def _file(path: Path, name: str, *, listed: bool = False) -> Iterator[DeviceCode]:
    """The code of a file.

    Args:
        listed: whether to report a file without device code.
    """
    name = name.encode(errors="replace").decode()  # records are UTF-8
    try:
        with _mapped(path) as data:
            codes, room = 0, _Room(_MOST_BYTES + _MOST_GROWTH * len(data))
            for codes, code in enumerate(_content(data, name, path.parent, room, is_code=listed), 1):  # noqa: B007
                yield code
            if listed and not codes:
                yield DeviceCode(name, NO_DEVICE_CODE())
    except Exception as error:
        yield DeviceCode(name, _cause(error))


def _cause(error: Exception) -> Cause:
    """Each library has errors of its own."""
    if isinstance(error, ModuleNotFoundError):
        return NEEDS_PACKAGE(str(error.name).partition(".")[0])
    return DAMAGED(str(error) or type(error).__name__)


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    with path.open("rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            yield b""
            return
        with _Mapped(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _content(
    data: Buffer, name: str, folder: Path | None, room: _Room, depth: int = 0, *, is_code: bool = False
) -> Iterator[DeviceCode]:
    """The code in a file's content.

    Args:
        folder: the folder of a thin archive's members; ``None`` within another archive.
        is_code: whether to search a file of an unknown format.
    """
    magic = data[:8]
    if depth > _MOST_NESTED:
        raise ValueError(f"more than {_MOST_NESTED} archives within each other")
    if magic.startswith(_ELF) and data[18:20] != _CUDA_MACHINE:
        yield from _elf(data, name, room)
    elif magic.startswith(_ZIP):
        yield from _zip(data, name, room, depth)
    elif magic in (_AR, _THIN):
        yield from _archive(data, name, folder, room, depth)
    elif data[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        yield from _tar(data, name, room, depth)
    elif opener := next((opener for start, opener in _PACKED.items() if magic.startswith(start)), None):
        yield from _member(lambda: opener(_stream(data)), name.rpartition(".")[0] or name, room, depth, is_code=True)
    elif other := next((other for start, other in _OTHERS.items() if magic.startswith(start)), None):
        yield DeviceCode(name, NOT_READ(other))
    elif target := _TARGET.search(data[: 1 << 16].partition(b"\0")[0]):
        yield DeviceCode(name, room.refusal(len(data)) or data[:], "", "ptx", target[1].decode())
    elif is_code or magic.startswith((_ELF, _FATBIN, *_WINDOWS)):
        # In a linked Windows program, relocatable code is part of the linked code.
        is_linked = magic.startswith(b"MZ")
        for code in _embedded(data, name, "", 0, len(data), room):
            if not (is_linked and isinstance(code.content, bytes) and cubin.is_relocatable(code.content)):
                yield code


def _elf(data: Buffer, name: str, room: _Room) -> Iterator[DeviceCode]:
    """The code in a host program's sections, since some libraries have no separate section for it."""
    linked = False
    # Relocatable code next to linked code is part of it, and its resources are not final.
    for section in sorted(cubin.sections_of(data), key=lambda section: section.name == _RELOCATABLE):
        if section.kind != _NOBITS and not (linked and section.name == _RELOCATABLE):
            for code in _embedded(data, name, section.name, section.offset, section.offset + section.size, room):
                linked |= code.kind == "cubin" and section.name == _LINKED
                yield code


def _embedded(data: Buffer, name: str, section: str, at: int, end: int, room: _Room) -> Iterator[DeviceCode]:
    """The cubins and the entries of the fatbins between two offsets; padding or other data separates them."""
    while match := _EMBEDDED.search(data, at, max(end - _HEADER.size, at)):
        start, at = match.span()
        is_fatbin = match[0] == _FATBIN
        if is_fatbin:
            _, version, header, size = _HEADER.unpack_from(data, start)
            is_known, size = (version, header) == (1, _HEADER.size), header + size
        elif is_known := data[start + 18 : start + 20] == _CUDA_MACHINE:
            size = _elf_size(data, start)
        if not is_known:
            continue  # the same bytes in other data
        place, at = f"{section}+{start:#x}", start + size
        if at > end:
            yield DeviceCode(name, DAMAGED(f"{size} bytes, of which {end - start} left"), place)
            return
        if is_fatbin:
            yield from _entries(data, name, section, start + _HEADER.size, at, room)
        else:
            content = room.refusal(size) or data[start:at]
            yield DeviceCode(name, content, place, arch="" if isinstance(content, Cause) else arch_of(content))


def _elf_size(data: Buffer, at: int) -> int:
    """The size of an ELF file that begins at an offset."""
    programs, sections = struct.unpack_from("<QQ", data, at + 32)
    program_count, _, section_count = struct.unpack_from("<HHH", data, at + 56)
    rows = [struct.unpack_from("<4xI16xQQ", data, at + sections + 64 * i) for i in range(section_count)]
    contents = [offset + size for kind, offset, size in rows if kind != _NOBITS]
    return int(max(programs + 56 * program_count, sections + 64 * section_count, *contents))


def _entries(data: Buffer, name: str, section: str, entry: int, end: int, room: _Room) -> Iterator[DeviceCode]:
    while entry + _ENTRY.size <= end:
        place = f"{section}+{entry:#x}"
        kind, _, header, size, packed, _, _, _, sm, _, _, flags, _, unpacked = _ENTRY.unpack_from(data, entry)
        start, entry = entry + header, entry + header + size
        if entry > end or header < _ENTRY.size or packed > size:
            yield DeviceCode(name, DAMAGED(f"an entry of {size} bytes that would be longer"), place)
            return
        arch = f"sm_{sm}" + ("a" if flags & _SPECIFIC else "f" if flags & _FAMILY else "")
        content: bytes | Cause = b""
        if kind not in _KINDS:
            content = DAMAGED(f"an entry of the unknown kind {kind}")
        elif _KINDS[kind] != "lto":
            code = data[start : start + (packed or size)]
            content = room.refusal(max(size, unpacked)) or _unpacked(code, flags, unpacked)
        yield DeviceCode(name, content, place, _KINDS.get(kind, "cubin"), arch)


def _unpacked(data: bytes, flags: int, size: int) -> bytes | Cause:
    """An entry's decompressed content, or the cause of a failure."""
    if not flags & (_LZ4 | _ZSTD):
        return data
    try:
        if flags & _LZ4:
            import lz4.block

            return bytes(lz4.block.decompress(data, uncompressed_size=size))
        with _zstd(io.BytesIO(data)) as reader:
            content = bytes(reader.read(size + 1))
    except Exception as error:
        return _cause(error)
    return content if len(content) == size else DAMAGED(f"{len(content)} bytes, expected {size}")


def _zstd(stream: IO[bytes]) -> IO[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    return cast("IO[bytes]", decompressor.stream_reader(stream, read_across_frames=True))


#: What opens a compressed file, by its beginning.
_PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
    b"\x28\xb5\x2f\xfd": _zstd,
}
_MAGICS = (_ELF, _FATBIN, _ZIP, _AR, _THIN, *_WINDOWS, *_PACKED, *_OTHERS)


def _stream(data: Buffer) -> IO[bytes]:
    return cast("IO[bytes]", data) if isinstance(data, _Mapped) else io.BytesIO(data)


def _zip(data: Buffer, name: str, room: _Room, depth: int) -> Iterator[DeviceCode]:
    with zipfile.ZipFile(_stream(data)) as archive:
        for info in archive.infolist():
            yield from _member(lambda: archive.open(info), f"{name}!{info.filename}", room, depth)  # noqa: B023


def _tar(data: Buffer, name: str, room: _Room, depth: int) -> Iterator[DeviceCode]:
    with tarfile.open(fileobj=_stream(data), mode="r:") as archive:
        for info in archive:
            if info.isfile():
                yield from _member(lambda: archive.extractfile(info), f"{name}!{info.name}", room, depth)  # noqa: B023
        if data[archive.offset : archive.offset + _BLOCK] != bytes(_BLOCK):
            raise ValueError("the archive has no end")


def _member(
    opener: Callable[[], Any], file: str, room: _Room, depth: int, *, is_code: bool = False
) -> Iterator[DeviceCode]:
    """The code in a member of an archive; it is copied only if its beginning is that of a known format."""
    try:
        with opener() as stream, tempfile.NamedTemporaryFile(prefix="flashcore-audit-") as copy:
            part = stream.read(_BLOCK)
            if not (is_code or part.startswith(_MAGICS) or part[_TAR_AT:].startswith(_TAR) or file.endswith(".ptx")):
                return
            while part:
                if refusal := room.refusal(len(part), room.left):
                    yield DeviceCode(file, refusal)
                    return
                copy.write(part)
                part = stream.read(1 << 20)
            copy.flush()
            with _mapped(Path(copy.name)) as content:
                yield from _content(content, file, None, room, depth + 1, is_code=is_code)
    except Exception as error:
        yield DeviceCode(file, _cause(error))


def _archive(data: Buffer, name: str, folder: Path | None, room: _Room, depth: int) -> Iterator[DeviceCode]:
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
            member = re.split(rb"[\n\0]", long_names[begin:], maxsplit=1)[0].decode("utf-8", "replace")  # or Windows'
        member = member.rstrip("/")
        opener: Callable[[], IO[bytes]] = functools.partial(io.BytesIO, data[start : start + size])
        if data[:8] == _THIN:
            at, opener = start, functools.partial(_as_file, Path(folder or os.devnull, member))
        for code in _member(opener, name, room, depth, is_code=True):
            yield replace(code, place=f"{member} {code.place}".strip())


def _as_file(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise ValueError(f"expected the file {path.name} next to the thin archive")
    return path.open("rb")


def arch_of(data: Buffer) -> str:
    """A cubin's arch, from the compiler's note of its command line, else from the ELF header."""
    flags = struct.unpack_from("<I", data, 48)[0]
    newer = data[8] >= 8
    number = flags >> 8 & 0xFF if newer else flags & 0xFF
    for section in cubin.sections_of(data):
        if section.name == ".note.nv.tkinfo" and (match := _COMMAND.search(section.content(data))):
            return match[1].decode()
    return f"sm_{number}{'a' if not newer and flags & 0x800 else ''}"
