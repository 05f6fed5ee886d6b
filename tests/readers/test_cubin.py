"""Cubins, read from recorded real ones; what cuobjdump and ptxas say of them is the oracle."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError
from flashcore.readers import cubin
from tests.support.cubins import ARCHS, DATA, MANGLED, sample, text


def usage(arch: str) -> dict[str, dict[str, int]]:
    """cuobjdump's output for each kernel."""
    matches = re.findall(r"Function (\S+):\n\s+(.*)", text(f"static_{arch}.usage.txt"))
    return {name: {k: int(v) for k, v in re.findall(r"(\w+)(?:\[0\])?:(\d+)", line)} for name, line in matches}


@pytest.mark.parametrize("arch", ARCHS)
def test_a_cubin_reads_as_cuobjdump_does(arch: str) -> None:
    expected = usage(arch)
    kernels = cubin.read(DATA / f"static_{arch}.cubin", arch).kernels
    assert {k.name for k in kernels} == set(expected) == {MANGLED, "shared", "spills", "stack", "warned"}
    for kernel in kernels:
        listed = expected[kernel.name]
        reserved = 1024 if arch == "sm_90a" and listed["SHARED"] else 0  # cuobjdump counts what the system takes
        assert kernel.registers == listed["REG"]
        assert kernel.stack_bytes == listed["STACK"]
        assert kernel.static_smem == listed["SHARED"] - reserved


@pytest.mark.parametrize("arch", ARCHS)
def test_sections_are_those_of_the_elf_header(arch: str) -> None:
    data = (DATA / f"static_{arch}.cubin").read_bytes()
    sections = cubin.sections_of(data)
    symbols = next(s for s in sections if s.name == ".symtab")
    assert (sections[symbols.link].name, symbols.kind, symbols.flags) == (".strtab", 2, 0)
    code = [s for s in sections if s.name.startswith(".text.")]
    assert code and all(s.kind == 1 and s.flags & 0x6 == 0x6 for s in code)  # program text: allocated, executable


def test_registers_may_be_with_the_code_as_in_relocatable_cubins() -> None:
    data = (DATA / "static_sm_80.cubin").read_bytes()
    attribute = b"\x04\x2f\x08\x00"
    contents = (data, data.replace(attribute, b"\x04\x00\x08\x00"))
    there, moved = ([k.registers for k in cubin.parse(content, "sm_80", "").kernels] for content in contents)
    assert attribute in data and there == moved


@pytest.mark.parametrize("arch", ARCHS)
def test_a_cubin_reads_as_ptxas_says(arch: str) -> None:
    messages = re.findall(
        r"entry function '(\S+)'.*?\n.*?\n.*?\n.*?Used (\d+) registers, used (\d+) barriers(?:.*?, (\d+) bytes smem)?",
        text(f"static_{arch}.log"),
    )
    kernels = {k.name: k for k in cubin.read(DATA / f"static_{arch}.cubin", arch).kernels}
    assert len(messages) == len(kernels) == 5
    for name, registers, barriers, smem in messages:
        results = (kernels[name].registers, kernels[name].barriers, kernels[name].static_smem)
        assert results == (int(registers), int(barriers), int(smem or 0))


def test_parameters_and_launch_bounds() -> None:
    kernels = {k.name: k for k in cubin.read(DATA / "static_sm_90a.cubin", "sm_90a").kernels}
    assert {n: k.parameter_bytes for n, k in kernels.items()} == {
        MANGLED: 24, "shared": 24, "spills": 16, "stack": 16, "warned": 8,
    }  # fmt: skip
    assert kernels["spills"].max_threads == 1024
    assert kernels["stack"].max_threads is None


@pytest.mark.parametrize(
    ("attribute", "demands"),
    [
        (0x05, {"max_threads": 128}),  # __launch_bounds__ as PTX's .maxntid of several dimensions
        (0x10, {"required_block_x": 64, "required_block_y": 2, "required_block_z": 1}),
        (0x3D, {"required_cluster_x": 64, "required_cluster_y": 2, "required_cluster_z": 1}),
        (0x3F, {"max_cluster": 64}),
    ],
)
def test_what_a_kernel_demands_of_a_launch(attribute: int, demands: dict[str, int]) -> None:
    data = (DATA / "static_sm_90a.cubin").read_bytes()
    bounds = b"\x04\x05\x0c\0" + struct.pack("<III", 1024, 1, 1)
    assert data.count(bounds) == 1
    # A cluster's largest size is one number: what follows is an attribute that is not read.
    rank = struct.pack("<BBHIBBHBBH", 4, 0x3F, 4, 64, 4, 0xFF, 0, 3, 0xFF, 0)
    other = rank if attribute == 0x3F else struct.pack("<BBHIII", 4, attribute, 12, 64, 2, 1)
    kernels = cubin.parse(data.replace(bounds, other), "sm_90a", "").kernels
    assert {k.name: k.demands for k in kernels if k.demands} == {"spills": demands}


@pytest.mark.parametrize(
    ("name", "spills", "block"),
    [
        ("spills_ptxas_13_0", (736, 788), None),
        ("spills_cute", (1804, 1896), (512, 1, 1)),
        ("spills_shared_frame", (76, 76), None),  # of a called function
    ],
)
def test_spills_and_the_required_block_are_read(
    name: str, spills: tuple[int, int], block: tuple[int, int, int] | None
) -> None:
    """The bytes are those of ``ptxas -v``; of CuTe's kernel, those that its listing's widths add up to."""
    (kernel,) = cubin.parse(sample(name), "sm_90a", name).kernels
    assert (kernel.spills, kernel.block) == (spills, block)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", ["spills_called", "spills_separate", "spills_recursive", "spills_sm_61"])
def test_unlisted_spills_of_functions_are_unmeasured(name: str, listed: bool) -> None:
    """``ptxas -v`` counts more bytes: the registers that such a function saves for its caller."""
    data = sample(name)
    if not listed:  # as ptxas 12.5 writes it
        data = data.replace(b"\x04\x55", b"\x04\x54")
    (kernel,) = cubin.parse(data, "sm_61" if name == "spills_sm_61" else "sm_80", name).kernels
    assert (kernel.stack_bytes, kernel.spills, kernel.is_incomplete) == (None, None, True)


def test_before_sm_70_only_a_frame_tells_that_a_function_uses_local_memory() -> None:
    """There, the bits of a newer opcode are registers of an instruction that may be anything."""
    data = sample("spills_sm_61")
    for attribute, symbol, frame in ((0x11, 2, 152), (0x12, 6, 0xFFFFFFFF)):
        had = struct.pack("<BBHII", 4, attribute, 8, symbol, frame)
        assert had in data
        data = data.replace(had, struct.pack("<BBHII", 4, attribute, 8, symbol, 0))
    (text,) = (s for s in cubin.sections_of(data) if s.name.startswith(".text."))
    at = text.offset + 112 + 160  # in the called function
    data = data[:at] + struct.pack("<H", 0x1983) + data[at + 2 :]
    (kernel,) = cubin.parse(data, "sm_61", "called").kernels
    assert (kernel.stack_bytes, kernel.is_incomplete) == (0, False)


def test_a_function_that_claims_more_code_than_there_is_is_refused() -> None:
    place = struct.pack("<QQ", 192, 19008)  # the start and size of the called function
    data = sample("spills_called")
    assert place in data
    with pytest.raises(FlashcoreError, match="functions overlap"):
        cubin.parse(data.replace(place, struct.pack("<QQ", 192, 1 << 60)), "sm_80", "long")


@pytest.mark.parametrize("damage", ["kind", "offset", "instruction", "width"])
def test_a_note_that_is_about_anything_else_leaves_spills_unmeasured(damage: str) -> None:
    data = bytearray(sample("spills_ptxas_13_0"))
    notes = data.index(struct.pack("<II", 1, 0x310))  # the first
    code = next(s.offset for s in cubin.sections_of(bytes(data)) if s.name == ".text.k") + 0x310
    if damage == "kind":
        data[notes] = 2
    elif damage == "offset":
        data[notes + 4 : notes + 8] = struct.pack("<I", 1 << 30)
    elif damage == "instruction":
        data[code] ^= 1
    else:
        data[code + 9] |= 0xE
    (kernel,) = cubin.parse(bytes(data), "sm_90a", "damaged").kernels
    assert kernel.spills is None and kernel.registers


@pytest.mark.parametrize("keep", [0, 3, 64, 1000, 16000])
def test_a_cubin_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes((DATA / "static_sm_80.cubin").read_bytes()[:keep])
    with pytest.raises(FlashcoreError, match=r"cut\.cubin: expected a 64-bit CUDA ELF file"):
        cubin.read(path, "sm_80")


def test_something_else_is_not_a_cubin(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("#!/bin/sh\n" * 100, encoding="utf-8")
    with pytest.raises(FlashcoreError, match="expected a 64-bit CUDA ELF file, found b'#!/b'"):
        cubin.read(path, "sm_80")


@pytest.mark.parametrize(
    ("size", "listed"),
    [(0, b"\0"), (7, b"\x07"), (127, b"\x7f"), (128, b"\x80\x01"), (620, b"\xec\x04"), (70000, b"\xf0\xa2\x04")],
)
def test_line_tables_have_the_sizes_of_the_sources(size: int, listed: bytes) -> None:
    for name in (b"/a/kernel.cu", b"kernel.cu"):
        content = b"/usr\0\0" + name + b"\0\x01\xc9\xd8\x95\xd8\x06" + listed + b"other.cu\0\0\0\0\0"
        assert cubin.names_source(content, "kernel.cu", size)
        assert not cubin.names_source(content, "kernel.cu", size + 1)
        assert not cubin.names_source(content, "kernel_cu", size)
