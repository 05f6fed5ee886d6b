"""What a cubin may not bring, from the compiler's own cubins."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashcore.machine.toolchain import Nvcc
from flashcore.readers import cubin
from flashcore_judge import inspection
from flashcore_judge.inspection import Inspected

#: The small header does not declare these.
LIBRARY = re.compile("printf|malloc|sinf")
HONEST = 'extern "C" __global__ void k(float* x, int n) { if (n > 3) x[threadIdx.x] = sinf(x[n]) + c[n % 4]; }'
CONSTANTS = "__constant__ float c[4] = {1, 2, 3, 4};\n"


def inspect(path: Path, arch: str) -> Inspected:
    return inspection.inspect(path.name, path.read_bytes(), arch)


def compile_kernel(compiler: Nvcc, folder: Path, source: str, *flags: str) -> None:
    """Writes ``k.cubin``."""
    (folder / "k.cu").write_text(f"#include <cstdio>\n{source}" if "printf" in source else source)
    environment = {k: v for k, v in os.environ.items() if k != "NVCC_PREPEND_FLAGS" or not LIBRARY.search(source)}
    command = [str(compiler.path), "-cubin", *flags, "k.cu", "-o", "k.cubin"]
    subprocess.run(command, check=True, cwd=folder, env=environment)


def reasons(compiler: Nvcc, folder: Path, source: str, *flags: str) -> str:
    compile_kernel(compiler, folder, source, "-arch=sm_90a", *flags)
    return "; ".join(inspect(folder / "k.cubin", "sm_90a").reasons)


@pytest.fixture(scope="module")
def compiled(compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    assert reasons(compiler, folder, CONSTANTS + HONEST) == ""
    return folder / "k.cubin"


@pytest.fixture
def honest(compiled: Path, tmp_path: Path) -> Path:
    """A folder with the cubin of an honest kernel."""
    shutil.copy(compiled, tmp_path)
    return tmp_path


def test_constants_and_the_tables_of_sine_are_no_state(honest: Path) -> None:
    assert inspect(honest / "k.cubin", "sm_90a").reasons == []
    (facts,) = inspect(honest / "k.cubin", "sm_90a").kernels
    assert facts["kernel"] == "k" and facts["registers"] > 8


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("__device__ int s; __global__ void k(int* x) { *x = s++; }", "4 bytes of global variables"),
        ("__device__ int s[2] = {1, 2}; __global__ void k(int* x) { *x = s[1]++; }", "8 bytes of initialized"),
        ("__global__ void k(int* x) { printf(\"%d\", *x); }", "allocation do: vprintf"),
        ("__global__ void k(void** x) { *x = malloc(8); }", "allocation do: malloc"),
        (
            "__global__ void k(long long* x) { asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(*x)); }",
            "reads %globaltimer",
        ),
        (
            "__global__ void k(int* x) { asm volatile(\"mov.u32 %0, %globaltimer_hi;\" : \"=r\"(*x)); }",
            "reads %globaltimer",
        ),
    ],
)  # fmt: skip
def test_state_output_allocation_and_clocks_are_refused(
    compiler: Nvcc, tmp_path: Path, source: str, reason: str
) -> None:
    assert reason in reasons(compiler, tmp_path, source)


def test_launches_from_the_device_and_their_relocations_are_refused(compiler: Nvcc, tmp_path: Path) -> None:
    source = "__global__ void c(int* x) { *x = 1; } __global__ void k(int* x) { c<<<1, 1>>>(x); }"
    wrong = reasons(compiler, tmp_path, source, "-rdc=true")
    assert "cudaCDP" in wrong and "a relocation of type" in wrong


PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .global .align 4 .b32 seen[3];
%s
.visible .entry k(.param .u64 x) {
  .reg .b32 %%a; .reg .b64 %%x;
  ld.param.u64 %%x, [x]; cvta.to.global.u64 %%x, %%x; ld.global.u32 %%a, [seen+4]; st.global.u32 [%%x], %%a;
  %s ret;
}
"""


def test_state_that_can_be_written_between_calls_is_listed(compiler: Nvcc, tmp_path: Path) -> None:
    def of(*parts: str) -> Inspected:
        (tmp_path / "k.ptx").write_text(PTX % parts)
        command = [str(compiler.path), "-arch=sm_90a", "-cubin", "k.ptx", "-o", "k.cubin"]
        subprocess.run(command, check=True, cwd=tmp_path)
        return inspect(tmp_path / "k.cubin", "sm_90a")

    assert (of("", "").reasons, of("", "").state) == ([], ["seen"])
    hidden = of(".global .align 4 .b32 hidden;", "st.global.u32 [hidden], %a;")
    assert hidden.reasons == ["k.cubin: 4 bytes of global variables, which outlive a call: pass a workspace"]


def changed(folder: Path, change: Callable[[bytearray, list[cubin.Section]], None]) -> str:
    """The reasons against a cubin that is changed after its compilation."""
    data = bytearray((folder / "k.cubin").read_bytes())
    change(data, cubin.sections_of(bytes(data)))
    (folder / "changed").write_bytes(data)
    return "; ".join(inspect(folder / "changed", "sm_90a").reasons)


def named(sections: list[cubin.Section], name: str) -> cubin.Section:
    return next(s for s in sections if s.name == name)


def test_variables_that_overlap_or_share_a_name_hide_no_state(compiler: Nvcc, tmp_path: Path) -> None:
    more = "".join(f".visible .global .align 4 .b32 {name}[4];" for name in ("more", "last"))
    (tmp_path / "k.ptx").write_text(PTX % (more, "st.global.u32 [more], %a; st.global.u32 [last], %a;"))
    subprocess.run([compiler.path, "-arch=sm_90a", "-cubin", "k.ptx", "-o", "k.cubin"], check=True, cwd=tmp_path)
    assert inspect(tmp_path / "k.cubin", "sm_90a").reasons == []

    def rows(data: bytearray, sections: list[cubin.Section]) -> dict[str, int]:
        at = named(sections, ".symtab").offset
        return {s.name: at + 24 * i for i, s in enumerate(cubin.symbols_of(bytes(data), sections))}

    def overlap(data: bytearray, sections: list[cubin.Section]) -> None:
        places = rows(data, sections)
        data[places["last"] + 8 : places["last"] + 16] = data[places["more"] + 8 : places["more"] + 16]

    def rename(data: bytearray, sections: list[cubin.Section]) -> None:
        places = rows(data, sections)
        data[places["last"] : places["last"] + 4] = data[places["more"] : places["more"] + 4]

    assert "16 bytes of global variables" in changed(tmp_path, overlap)
    assert "32 bytes of global variables" in changed(tmp_path, rename)


def test_relocations_are_known_by_what_they_change(honest: Path) -> None:
    def disguise(data: bytearray, sections: list[cubin.Section]) -> None:
        section = next(s for s in sections if s.name == ".rela.debug_frame")
        (index,) = [i for i, s in enumerate(sections) if s.name == ".text.k"]
        header = struct.unpack_from("<Q", data, 0x28)[0] + 64 * sections.index(section)
        struct.pack_into("<I", data, header + 44, index)  # what it changes
        struct.pack_into("<I", data, section.offset + 8, 0x77)  # how

    assert "a relocation of type 0x77" in changed(honest, disguise)


def test_writable_memory_under_another_name_is_refused(honest: Path) -> None:
    def writable(data: bytearray, sections: list[cubin.Section]) -> None:
        header = struct.unpack_from("<Q", data, 0x28)[0] + 64 * sections.index(named(sections, ".debug_frame"))
        struct.pack_into("<Q", data, header + 8, 3)

    assert "the section .debug_frame is not understood (kind 0x1, flags 0x3)" in changed(honest, writable)


def test_a_name_does_not_acquit(compiler: Nvcc, tmp_path: Path) -> None:
    source = "__device__ int __cudart_i2opi_f[6] = {1}; __global__ void k(int* x) { *x = __cudart_i2opi_f[*x]++; }"
    assert "24 bytes of initialized" in reasons(compiler, tmp_path, source)


def test_large_tables_that_overlap_are_not_hashed_one_by_one(
    compiler: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sha256(content: bytes) -> object:
        assert len(content) <= 296
        return hashlib.sha256(content)

    monkeypatch.setattr(inspection, "hashlib", SimpleNamespace(sha256=sha256))
    source = "__device__ int s[99] = {1}; __global__ void k(int* x) { *x = s[*x]++; }"
    assert "396 bytes of initialized" in reasons(compiler, tmp_path, source)


def test_no_damaged_cubin_crashes_the_inspection(honest: Path, tmp_path: Path) -> None:
    whole, dice, answers = (honest / "k.cubin").read_bytes(), random.Random(1), set()
    for _ in range(200):
        broken = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            broken[dice.choice([dice.randrange(64), dice.randrange(len(broken))])] = dice.randrange(256)
        (tmp_path / "broken").write_bytes(broken[: dice.choice([len(broken), dice.randrange(len(broken))])])
        answers.add(bool(inspect(tmp_path / "broken", "sm_90a").reasons))
    assert answers == {True, False}


def test_sections_of_one_name_are_refused(honest: Path) -> None:
    def rename(data: bytearray, sections: list[cubin.Section]) -> None:
        table = struct.unpack_from("<Q", data, 0x28)[0]
        name, other = (table + 64 * sections.index(named(sections, n)) for n in (".debug_frame", ".nv.constant3"))
        data[other : other + 4] = data[name : name + 4]

    assert "each with a name of its own" in changed(honest, rename)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a", "sm_120"])
def test_honest_kernels_of_other_architectures_are_understood(compiler: Nvcc, tmp_path: Path, arch: str) -> None:
    compile_kernel(compiler, tmp_path, CONSTANTS + HONEST, f"-arch={arch}")
    assert inspect(tmp_path / "k.cubin", arch).reasons == []
