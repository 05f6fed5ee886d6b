"""Fatbins as nvcc writes them, around recorded cubins."""

from __future__ import annotations

import struct

from tests.measure.static.test_facts import DATA

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


def library(fatbins: bytes, section: str = ".nv_fatbin") -> bytes:
    """A host library with one section of data."""
    names = f"\0{section}\0.text\0.shstrtab\0".encode()
    ident = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 2)
    data = 64 + 3 * 64

    def header(name: int, kind: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 2, 0, offset, size, 0, 0, 8, 0)

    table = bytes(64) + header(1, 1, data, len(fatbins)) + header(len(section) + 8, 3, data + len(fatbins), len(names))
    return ident + table + fatbins + names
