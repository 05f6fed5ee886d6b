"""Device code in files of every format."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.features.audit import causes, containers
from flashcore.features.audit.inventory import inventory
from flashcore.model.cause import Cause, Template
from tests.support.containers import archive, compressed, member, program, tarred, zipped
from tests.support.fatbins import CUBINS, SPECIFIC, ZSTD, both, entry, fatbin, library


def codes(tmp_path: Path, content: bytes, name: str = "file.bin") -> list[tuple[str, str, str]]:
    """File, kind and arch of each piece of code, all of which can be read."""
    (tmp_path / name).write_bytes(content)
    every = list(containers.read(tmp_path / name))
    assert not [code.content for code in every if isinstance(code.content, Cause)]
    return [(code.file, code.kind, code.arch) for code in every]


def zstd(content: bytes) -> bytes:
    """Two frames, as parallel compressors write them."""
    compressor, half = pytest.importorskip("zstandard").ZstdCompressor(), len(content) // 2
    return bytes(compressor.compress(content[:half]) + compressor.compress(content[half:]))


def conda(files: dict[str, bytes]) -> bytes:
    return zipped({"metadata.json": b"{}", "pkg-k-1.0-0.tar.zst": zstd(tarred(files))})


ALL = [("cubin", "sm_80"), ("cubin", "sm_90a"), ("ptx", "sm_90")]


@pytest.mark.parametrize(
    ("content", "file", "expected"),
    [
        (both, "file.bin", ALL),
        (lambda: CUBINS["sm_80"], "file.bin", ALL[:1]),
        (lambda: CUBINS["sm_90a"], "file.bin", ALL[1:2]),
        (lambda: b"//\n.version 8.0\n.target sm_90a, debug\n", "file.bin", [("ptx", "sm_90a")]),
        (lambda: fatbin(entry(b"IR", 75, kind=8)), "file.bin", [("lto", "sm_75")]),
        (lambda: both() + bytes(8) + both(), "file.bin", ALL + ALL),
        (lambda: library(both()), "file.bin", ALL),
        (lambda: library(both(), ".data"), "file.bin", ALL),  # cuFFT's
        (lambda: library(b"\x50\xed\x55\xba" + bytes(40) + both()), "file.bin", ALL),
        (lambda: archive(member(b"/0", library(both())), member(b"b.o/", b"odd")), "file.bin", ALL),
        (lambda: zipped({"a.py": b"import os", "p/c.so": library(both())}), "file.bin!p/c.so", ALL),
        (lambda: library(CUBINS["sm_80"] + bytes(3) + CUBINS["sm_90a"], ".rodata"), "file.bin", ALL[:2]),
        (lambda: library(b"\x7fELF\x02" * 3 + CUBINS["sm_80"] + both(), ".lrodata"), "file.bin", ALL[:1] + ALL),
        (lambda: b"model" + CUBINS["sm_80"] + both(), "file.bin", ALL[:1] + ALL),  # of an unknown format
        (lambda: program(both()), "file.bin", ALL),
        (lambda: zipped({"k.pyd": program(CUBINS["sm_80"])}), "file.bin!k.pyd", ALL[:1]),
        (lambda: archive(member(b"k.obj/", b"\x64\x86" + bytes(18) + both())), "file.bin", ALL),
        (lambda: archive(member(b"//", b"Release\\k.obj\0"), member(b"/0", both())), "file.bin", ALL),
        (lambda: tarred({"x.py": b"", "p/c.so": library(both())}), "file.bin!p/c.so", ALL),
        (lambda: tarred({"p/c.so": library(both())}, "w:gz"), "file!p/c.so", ALL),
        (lambda: tarred({"p/c.so": library(both())}, "w:xz"), "file!p/c.so", ALL),
        (lambda: tarred({"p/c.so": library(both())}, "w:bz2"), "file!p/c.so", ALL),
        (lambda: zstd(library(both())), "file", ALL),
        (lambda: gzip.compress(CUBINS["sm_80"]), "file", ALL[:1]),
        (lambda: conda({"lib/c.so": library(both())}), "file.bin!pkg-k-1.0-0.tar!lib/c.so", ALL),
        (lambda: archive(member(b"data.tar.xz", tarred({"c.so": both()}, "w:xz"))), "file!c.so", ALL),  # Debian's
        (lambda: zipped({"w.zip": zipped({"c.a": archive(member(b"d.o/", both()))})}), "file.bin!w.zip!c.a", ALL),
    ],
)
def test_each_format_is_read(
    content: Callable[[], bytes], file: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert codes(tmp_path, content()) == [(file, *code) for code in expected]


def test_relocatable_code_counts_only_where_it_is_not_linked(tmp_path: Path) -> None:
    relocatable, linked = (fatbin(entry(CUBINS[arch], sm)) for arch, sm in (("sm_80", 80), ("sm_90a", 90)))
    assert codes(tmp_path, library(relocatable, "__nv_relfatbin")) == [("file.bin", *ALL[0])]
    for content in (
        library(linked, more={"__nv_relfatbin": relocatable}),
        library(relocatable, "__nv_relfatbin", {".nv_fatbin": linked}),
    ):
        assert [file for file, *_ in codes(tmp_path, content)] == ["file.bin"], "in either order"


def test_relocatable_code_in_a_windows_program_is_part_of_its_linked_code(tmp_path: Path) -> None:
    unlinked = bytearray(CUBINS["sm_80"])
    unlinked[16] = 1
    content = both() + fatbin(entry(bytes(unlinked), 80))
    assert codes(tmp_path, program(content)) == [("file.bin", *code) for code in ALL]
    assert codes(tmp_path, content) == [("file.bin", *code) for code in (*ALL, ALL[0])]


def test_a_thin_archive_names_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "k.o").write_bytes(library(both()))
    header = member(b"k.o/", b"")[:48] + b"%-10d`\n" % len(library(both()))
    thin = archive(magic=b"!<thin>\n") + header
    assert codes(tmp_path, thin) == [("file.bin", *code) for code in ALL]
    (tmp_path / "k.o").unlink()
    (code,) = containers.read(tmp_path / "file.bin")
    assert code.place == "k.o" and getattr(code.content, "code", "") == causes.DAMAGED.code


def test_a_cache_folder_lists_a_cubin_and_not_the_ptx_that_it_was_made_of(tmp_path: Path) -> None:
    for name in ("a/k.cubin", "a/k.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(CUBINS["sm_80"] if name.endswith("cubin") else b"{}")
    for name in ("a/k.ptx", "a/other.ptx"):
        (tmp_path / name).write_bytes(b".version 8.0\n.target sm_80\n")
    assert [(c.file, c.kind) for c in containers.read(tmp_path)] == [("a/k.cubin", "cubin"), ("a/other.ptx", "ptx")]


@pytest.mark.parametrize("package", ["lz4.block", "zstandard"])
def test_compressed_code_is_read(package: str, tmp_path: Path) -> None:
    content = CUBINS["sm_90a"]
    packed, flags = compressed(package, content)
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(packed, 90, flags | SPECIFIC, unpacked=len(content))))
    (code,) = containers.read(tmp_path / "k.fatbin")
    assert (code.arch, code.content) == ("sm_90a", content)


@pytest.mark.parametrize("package", ["lz4.block", "zstandard"])
@pytest.mark.parametrize(("size", "cause"), [(10, causes.DAMAGED), (1 << 40, causes.TOO_LARGE)])
def test_decompression_has_a_limit(package: str, size: int, cause: Template, tmp_path: Path) -> None:
    packed, flags = compressed(package, bytes(1 << 20))
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(packed, 90, flags, unpacked=size)))
    (code,) = containers.read(tmp_path / "k.fatbin")
    assert getattr(code.content, "code", "") == cause.code


def test_without_the_package_code_is_listed_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(b"\x28\xb5\x2f\xfd", 90, ZSTD, unpacked=20)))
    (code,) = containers.read(tmp_path / "k.fatbin")
    assert code.content == causes.NEEDS_PACKAGE("zstandard")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", causes.NO_DEVICE_CODE),
        (b"text", causes.NO_DEVICE_CODE),
        (library(b"")[:80], causes.DAMAGED),
        (both()[:-9], causes.DAMAGED),
        (zipped({"c.so": library(both())})[:-30], causes.DAMAGED),
        (fatbin(entry(b"", 90, kind=77)), causes.DAMAGED),
        (library(CUBINS["sm_80"][:-100], ".rodata"), causes.DAMAGED),
        (tarred({"c.so": library(both()), "d.so": both()})[: 512 * 3], causes.DAMAGED),
        (tarred({"x.py": b""})[:512], causes.DAMAGED),
        (gzip.compress(library(both()))[:-9], causes.DAMAGED),
        (b"\x28\xb5\x2f\xfd damaged", causes.DAMAGED),
        (b"7z\xbc\xaf\x27\x1c", causes.NOT_READ),
        (zipped({"k.rpm": b"\xed\xab\xee\xdb\3\0"}), causes.NOT_READ),
        (fatbin(struct.pack("<HHIQ", 2, 0x101, 64, 1 << 60) + bytes(60)), causes.DAMAGED),
        (archive() + b"x" * 60, causes.DAMAGED),
        (archive() + b"%-48s%-10d`\n" % (b"k.o/", -60), causes.DAMAGED),
        (
            fatbin(entry(both(), 90)).replace(
                b"\0\0\0\0" + struct.pack("<II", 0, 8), struct.pack("<III", 1 << 31, 0, 8)
            ),
            causes.DAMAGED,
        ),
        (
            zipped({"c.so": library(both())}).replace(b"PK\1\2\x14\x03\x14\0\0\0\x08", b"PK\1\2\x14\x03\x14\0\0\0\x0e"),
            causes.DAMAGED,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", "content"),  # archives name the time
)
def test_what_cannot_be_read_has_a_cause(content: bytes, cause: Template, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(content)
    unread = inventory([tmp_path / "file.bin"]).unread
    assert {one.cause.code for one in unread} == {cause.code}


@pytest.mark.parametrize("make", [both, lambda: library(both()), lambda: zipped({"c.so": library(both())})])
def test_mutated_files_are_read_or_have_a_cause(make: Callable[[], bytes], tmp_path: Path) -> None:
    original, source = make(), random.Random(24)
    file = tmp_path / "file.bin"
    for _ in range(60):
        content = bytearray(original)
        for _ in range(source.randint(1, 30)):
            content[source.randrange(min(len(content), source.choice((100, 1 << 30))))] = source.randrange(256)
        file.write_bytes(content[: source.choice((len(content), source.randrange(len(content))))])
        result = inventory([file])
        assert result.kernels or result.unread or result.later or result.codes
