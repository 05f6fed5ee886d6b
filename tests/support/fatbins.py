"""Compiled files for audits: fatbins of recorded cubins, as nvcc writes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tests.support.cubins import DATA

LZ4, ZSTD, SPECIFIC = 0x2000, 0x8000, 0x100000

CUBINS = {arch: (DATA / f"static_{arch}.cubin").read_bytes() for arch in ("sm_80", "sm_90a")}

KERNELS = {"tensor<4>", "shared", "spills", "stack", "warned"}


def entry(content: bytes, sm: int, flags: int = 0, *, kind: int = 2, unpacked: int = 0) -> bytes:
    padded = content + bytes(-len(content) % 8)
    sizes = (len(padded), len(content) if unpacked else 0, 0, 8, 1, sm, 0, 0, 0x11 | flags, 0, unpacked)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, *sizes) + padded


def fatbin(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def both() -> bytes:
    """Machine code for two archs, and PTX."""
    ptx = b".version 8.0\n.target sm_90\n"
    return fatbin(entry(CUBINS["sm_80"], 80), entry(CUBINS["sm_90a"], 90, SPECIFIC), entry(ptx, 90, kind=1))


def library(fatbins: bytes, section: str = ".nv_fatbin", more: Mapping[str, bytes] | None = None) -> bytes:
    """A host library with one section of data, or ``more`` behind it."""
    sections = {section: fatbins, **(more or {})}
    names = ("\0" + "".join(f"{name}\0" for name in sections) + ".shstrtab\0").encode()
    count = len(sections) + 2
    head = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, count, count - 1)
    content = [*((name, 1, data) for name, data in sections.items()), (".shstrtab", 3, names)]
    table, at = bytes(64), 64 + count * 64
    for name, kind, data in content:
        start = names.index(f"\0{name}\0".encode()) + 1
        table += struct.pack("<IIQQQQIIQQ", start, kind, 2, 0, at, len(data), 0, 0, 8, 0)
        at += len(data)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + head + table + b"".join(data for *_, data in content)
