"""Archives, packages and programs that have compiled files in them."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile

import pytest

from tests.support.fatbins import LZ4, ZSTD


def member(name: bytes, content: bytes) -> bytes:
    return b"%-16s%-12d%-6d%-6d%-8d%-10d`\n" % (name, 0, 0, 0, 0, len(content)) + content + b"\n" * (len(content) % 2)


def archive(*members: bytes, magic: bytes = b"!<arch>\n") -> bytes:
    return magic + member(b"/", b"symbols!") + member(b"//", b"a_long_name_of_an_object.o/\n") + b"".join(members)


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return stream.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as file:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def program(content: bytes) -> bytes:
    """A Windows program: its header, code and data."""
    return b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0\x64\x86" + bytes(400) + content + bytes(100)


def compressed(package: str, content: bytes) -> tuple[bytes, int]:
    module = pytest.importorskip(package)
    if package == "zstandard":
        return module.ZstdCompressor().compress(content), ZSTD
    return module.compress(content, store_size=False), LZ4
