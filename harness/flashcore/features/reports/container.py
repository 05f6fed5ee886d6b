"""Reads an ``.ncu-rep``'s blocks, to find out whether the file is complete.

NVIDIA's reader skips damaged parts, so it reads a cut file as a shorter one. The file is a header and blocks, each with
a header that gives the size and the results of its payload (Protocol Buffers, little-endian sizes; form 7, derived from
files of ncu 2025.3). Blocks without a payload describe the session: versions and command line. A block of code holds
the loaded cubin.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from flashcore.errors import RecordError
from flashcore.readers.ncu.results import Container

MAGIC = b"NVR\0"
_READABLE_FORM = 7
_ELF = b"\x7fELF\x02\x01"
# Numbers of fields in a block's header.
_CODES, _SESSION, _BYTES = 1, 3, 5
_COMMAND = 11


def read(data: bytes, name: str) -> Container:
    """Reads the blocks of a report.

    Raises:
        RecordError: it is not a report, or is cut short or damaged.
    """
    if data[:4] != MAGIC:
        raise RecordError(
            f"{name}: expected an Nsight Compute report (.ncu-rep), found a file that begins with {data[:8]!r}\n"
            "  hint: name the file that ncu --export wrote, or a CSV page of it"
        )
    form = None
    try:
        (size,) = struct.unpack_from("<I", data, 4)
        form = _fields(data[8 : 8 + size]).get(1)
        return _blocks(data, 8 + size)
    except (struct.error, IndexError, ValueError) as error:
        if form is not None and form != _READABLE_FORM:
            return Container(None)
        raise RecordError(
            f"{name}: expected whole blocks of results, found the file cut short or damaged ({error})\n"
            "  hint: copy it again, or profile again"
        ) from error


def _blocks(data: bytes, at: int) -> Container:
    results, command = 0, ""
    cubins: list[bytes] = []
    parts: list[bytes] = []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        header = _fields(data[at + 4 : at + 4 + size])
        at += 4 + size
        length = header.get(_BYTES, 0)
        if not isinstance(length, int) or not header or at + length > len(data):
            raise ValueError(f"a block ends beyond the file's {len(data):,} bytes")
        if isinstance(part := header.get(_SESSION), bytes):
            parts.append(part)
            if not command and isinstance(words := _fields(part).get(_COMMAND), bytes):
                command = words.decode(errors="replace").strip()
        if header.get(_CODES):
            cubins += _elfs(data[at : at + length])
        elif length:
            results += 1
        at += length

    session = b"\n".join(parts)

    def version(label: bytes) -> str:
        match = re.search(label + rb".{1,4}?(\d+(?:\.\d+)+)", session, re.DOTALL)
        return match[1].decode() if match else ""

    return Container(results, version(b"Nsight Compute Target"), version(b"CUDA Version"), command, tuple(cubins))


def _elfs(payload: bytes) -> Iterator[bytes]:
    """The ELF files in a block, each up to the next one. Files do not overlap, however often a damaged or hostile block
    repeats their first bytes."""
    start, end = -1, 0
    while (at := payload.find(_ELF, end)) >= 0:
        if start >= 0:
            yield payload[start:at]
        start = at
        programs, sections = struct.unpack_from("<32x2Q", payload, at)
        header, program, program_count, section, section_count = struct.unpack_from("<52x5H", payload, at)
        end = at + max(header, programs + program * program_count, sections + section * section_count, len(_ELF))
    if start >= 0:
        yield payload[start:]


def _fields(data: bytes) -> dict[int, int | bytes]:
    """The fields of one message by number, the first of each: integers, or bytes.

    Raises:
        ValueError, IndexError: it is not a message.
    """
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind not in (0, 1, 2, 5):
            raise ValueError(f"a field of the kind {kind}")
        value: int | bytes
        value, at = _number(data, at) if kind in (0, 2) else ({1: 8, 5: 4}[kind], at)
        if kind:
            at, size = at + value, value
            value = data[at - size : at]
            if len(value) < size:
                raise ValueError("a field is longer than its block")
        fields.setdefault(key >> 3, value)
    return fields


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
