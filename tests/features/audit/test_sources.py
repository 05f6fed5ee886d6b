"""An audit of a CUDA file compiles it; its other formats have a row for each kernel."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from tests.support.fatbins import KERNELS, both, library

SOURCE = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = expf(x[threadIdx.x]) / (x[0] + 1.5f); }'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "kernel.cu"
    file.write_text(SOURCE)
    return file


def test_a_source_is_compiled_for_each_arch_by_the_shown_command(
    compiler: toolchain.Nvcc, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(source), "--arch", "90a", "--arch", "8.0"]) == Exit.OK
    *table, shown = capsys.readouterr().out.splitlines()
    assert {(row[1], row[-1]) for row in map(str.split, table[2:4])} == {("sm_80", "k"), ("sm_90a", "k")}
    subprocess.run([*shlex.split(shown), "-o", tmp_path / "hand.fatbin"], check=True)
    assert main(["audit", str(tmp_path / "hand.fatbin")]) == Exit.OK
    by_hand = capsys.readouterr().out.splitlines()[2:4]
    assert {tuple(row.split()[1:]) for row in by_hand} == {tuple(row.split()[1:]) for row in table[2:4]}


def test_each_of_several_sources_has_its_kernels(
    compiler: toolchain.Nvcc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.cu").write_text(SOURCE.replace("k(", f"of_{folder}("))
    (tmp_path / "last.cu").write_text(SOURCE)
    files = [str(tmp_path / name) for name in ("a/same.cu", "b/same.cu", "last.cu")]
    assert main(["audit", *files, "--arch", "sm_90", "--kernel", "*"]) == Exit.OK
    _, _, *rows, total, _, _, command = capsys.readouterr().out.splitlines()
    assert {(row.split()[0], row.split()[-1]) for row in rows} == {
        ("same_cu", "of_a"),
        ("same_cu_2", "of_b"),
        ("last_cu", "k"),
    }
    assert total.startswith("3 kernels in 3 files") and command.endswith("last.cu")


def test_its_flags_are_the_owners(compiler: toolchain.Nvcc, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", str(source), "--arch", "sm_90", "--max", "code_bytes=1000000", "--format", "csv"]
    sizes = []
    for more in ([], ["--flags=-O3 --use_fast_math"]):
        assert main([*words, *more]) == Exit.OK
        (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
        sizes.append(int(row["code_bytes"]))
    assert sizes[1] < sizes[0]


def test_without_an_arch_or_a_gpu_it_says_what_to_do(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Gpu, "find", lambda: None)
    assert main(["audit", str(source)]) == Exit.USAGE
    assert "--arch" in capsys.readouterr().err


@pytest.mark.parametrize("flags", ["-DNAME='x", '-DNAME="', "-I\\"])
def test_flags_that_no_shell_takes_are_refused(flags: str, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(source), "--arch", "sm_90", f"--flags={flags}"]) == Exit.USAGE
    assert f"--flags {flags}: expected words" in capsys.readouterr().err


def test_what_is_not_an_arch_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(source), "--arch", "hopper"]) == Exit.USAGE
    assert "--arch hopper: expected an arch such as sm_90a" in capsys.readouterr().err


def test_a_source_that_does_not_compile_says_why(
    compiler: toolchain.Nvcc, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_text(SOURCE.replace("expf", "exponential"))
    assert main(["audit", str(source), "--arch", "sm_90"]) == Exit.USAGE
    assert 'kernel.cu(1): error: identifier "exponential" is undefined' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("#include <theirs.h>", "-I FOLDER"),
        ("constexpr int two() { return 2; }\n__global__ void k(int* x) { *x = two(); }", "-std=c++17 FLAG"),
        ("__global__ void k(int n) { if (n) k<<<1, 1>>>(n - 1); }", "audit the library or program"),
    ],
)
def test_the_hint_of_a_failed_compilation_is_an_option_of_the_audit(
    text: str, fix: str, compiler: toolchain.Nvcc, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_text(text)
    assert main(["audit", str(source), "--arch", "sm_90"]) == Exit.USAGE
    hint = capsys.readouterr().err.partition("hint: ")[2]
    assert fix in hint and "`" not in hint


def test_flags_that_start_with_a_dash_get_the_form_that_takes_them(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["audit", str(source), "--flags", "-Iinclude"])
    assert "--flags=VALUE" in capsys.readouterr().err


def test_a_folder_without_compiled_code_tells_how_its_sources_are_read(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(source.parent)]) == Exit.UNMEASURED
    assert f"{source.parent}/*.cu" in capsys.readouterr().out
    source.unlink()
    assert main(["audit", str(source.parent)]) == Exit.UNMEASURED
    assert "no CUDA code" in capsys.readouterr().out


def test_each_kernel_has_a_row_with_its_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pkg.so"
    file.write_bytes(library(both()))
    out = tmp_path / "out.json"
    assert main(["audit", str(file), "--max", "registers=255", "--format", "csv", "--format", f"json={out}"]) == Exit.OK
    lines = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    rows = json.loads(out.read_text())["kernels"]
    assert {row["kernel"] for row in rows} == {line["kernel"] for line in lines} == KERNELS
    for row, line in zip(rows, lines, strict=True):
        assert (row["file"], row["arch"]) == (line["file"], line["arch"]) == ("pkg.so", row["arch"])
        assert {name: str(value) for name, value in row["facts"].items()} == {
            name: text for name, text in list(line.items())[3:] if text
        }
    (stack,) = (row for row in rows if (row["kernel"], row["arch"]) == ("stack", "sm_80"))
    assert "spill_store_bytes" in stack["unmeasured"] and stack["unmeasured"]["spill_store_bytes"]


@pytest.mark.parametrize(("wrong", "right"), [("spills", "spill_store_bytes"), ("regs", "registers")])
def test_a_wrong_fact_gets_the_nearest_right_ones(
    wrong: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pkg.so"
    file.write_bytes(library(both()))
    assert main(["audit", str(file), "--max", f"{wrong}=0"]) == Exit.USAGE
    assert right in capsys.readouterr().err
