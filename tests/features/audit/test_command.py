"""``flashcore audit``, and what the other commands make of its record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.record import CodeSubject
from flashcore.records import store
from tests.support.cubins import sample
from tests.support.fatbins import CUBINS, KERNELS, both, entry, fatbin, library

NATIVE = """
[[budget]]
name = "machine_code_for_each_gpu"
fact = "native_kernels"
min = 1
"""
BUDGETS = """
[[budget]]
name = "no_spills"
fact = "spill_store_bytes"
max = {most}
kernels = {kernels}
"""


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    file = tmp_path / "pkg.cpython-311-x86_64-linux-gnu.so"
    file.write_bytes(library(both()))
    return file


@pytest.fixture
def run(binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The folder of the run that an audit kept."""
    assert main(["audit", str(binary), "--keep", "--profiles", str(tmp_path / "profiles")]) == Exit.OK
    return capsys.readouterr().out.splitlines()[-1]


def test_a_table_lists_the_kernels_and_the_later_code(binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(binary)]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    rows = {tuple(line.split()) for line in lines[2:12]}
    assert {row[-1] for row in rows} == KERNELS
    assert lines[12].startswith("10 kernels in 1 file for sm_80, sm_90a")
    assert lines[13] == "pkg.cpython-311-x86_64-linux-gnu.so: 1 PTX text for sm_90"


def test_the_record_has_the_cubins_facts(run: str) -> None:
    record = store.read(Path(run))
    spilled = {f.subject.kernel: f.value for f in record.facts.named("spill_store_bytes") if f.subject.arch == "sm_80"}
    assert spilled == {"tensor<4>": 0, "shared": 0, "spills": 56, "stack": None, "warned": 0}
    occupancy = {(f.name, f.value) for f in record.facts if f.subject.kernel == "spills" and "occupancy" in f.name}
    assert ("occupancy_high", 100.0) in occupancy


def test_any_file_name_can_be_recorded(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.fatbin")).write_bytes(both())
    assert main(["audit", str(tmp_path), "--keep", "--profiles", str(tmp_path / "profiles")]) == Exit.OK


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("build/*.cubin", 1),
        ("build/**/*.cubin", 3),
        ("build/**", 3),
        ("build/**/", 3),
        ("**/x*", 2),
        ("build/*/*.cubin", 1),
        ("build/x/y/deep.cubin", 1),
    ],
)
def test_two_stars_match_folders_of_any_depth_and_count_each_file_once(
    pattern: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("top", "x/mid", "x/y/deep"):
        file = Path(f"build/{name}.cubin")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(CUBINS["sm_80"])
    Path("flashcore.toml").write_text(f'[audit]\nfiles = ["{pattern}"]\n')
    for words in ([pattern], []):
        assert main(["audit", *words, "--top", "0"]) == Exit.OK
        assert f"{5 * files} kernels in {files} file" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--top=-1", "--block=0", "--block=-32"])
def test_an_option_out_of_its_range_is_refused(option: str, binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(binary), option]) == Exit.USAGE
    assert option.replace("=", " ") + ": expected" in capsys.readouterr().err


def test_what_is_unmeasured_has_its_cause_below_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "called.cubin"
    file.write_bytes(sample("spills_recursive"))
    assert main(["audit", str(file)]) == Exit.OK
    assert "unmeasured in 1 kernel: the stack depends on values at run time" in capsys.readouterr().out


def test_code_that_cannot_be_read_is_listed_and_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "half.fatbin"
    file.write_bytes(fatbin(entry(b"\x7fELF damaged", 90)))
    assert main(["audit", str(file)]) == Exit.UNMEASURED
    assert "unreadable: half.fatbin +0x10 sm_90: damaged: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["spills_called", "spills_separate"])
def test_spills_of_a_called_function_are_never_zero(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "called"
    file.write_bytes(sample(name))
    assert main(["audit", str(file)]) == Exit.OK
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("rec"))
    assert (row[0], row[3:6]) == ("called", ["unmeasured"] * 3)


@pytest.mark.parametrize(
    ("most", "kernels", "code"),
    [
        (0, ["*", "!stack", "!spills"], 0),
        (0, ["*", "!stack"], 1),
        (1e6, ["*", "!stack"], 0),
        (1e6, ["*"], 3),  # whether `stack` spills is not known
        (0, ["absent"], 3),
    ],
)
def test_the_gate_judges_the_record(most: float, kernels: list[str], code: int, run: str, tmp_path: Path) -> None:
    budgets = tmp_path / "budgets.toml"
    budgets.write_text(BUDGETS.format(most=most, kernels=json.dumps(kernels)))
    assert main(["gate", run, "--budgets", str(budgets)]) == code


@pytest.mark.parametrize(("gpus", "code"), [("h200,l4", 0), ("h200,b200", 1), ("", 3)])
def test_the_gate_requires_machine_code_for_gpus(
    gpus: str, code: int, binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "budgets.toml").write_text(NATIVE)
    assert main(["audit", str(binary), "--for", gpus, "--keep", "--profiles", str(tmp_path / "profiles")]) == Exit.OK
    run = capsys.readouterr().out.splitlines()[-1]
    assert main(["gate", run, "--budgets", str(tmp_path / "budgets.toml")]) == code


@pytest.mark.parametrize(("block", "pct"), [(256, 100.0), (96, 98.4375), (1024, 100.0), (1025, None)])
def test_occupancy_is_for_the_block_size(
    block: int, pct: float | None, binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(binary), "--block", str(block), "--keep", "--profiles", str(tmp_path)]) == Exit.OK
    record = store.read(Path(capsys.readouterr().out.splitlines()[-1]))
    subject = CodeSubject("pkg", "sm_90a", kernel="spills")
    assert [record.facts.number(name, subject) for name in ("occupancy_low", "occupancy_high")] == [pct, pct]


@pytest.mark.parametrize(
    "command", [["report", "-o", "report"], ["facts"], ["runs", "pack", "-o", "k.run.zip"], ["compare"]]
)
def test_other_commands_take_the_record(
    command: list[str], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    again = [run] if command[0] == "compare" else []
    assert main([*command, run, *again]) == Exit.OK


def test_two_versions_of_a_file_are_compared_by_kernel(
    binary: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    old = tmp_path / "pkg.cpython-310-x86_64-linux-gnu.so"
    old.write_bytes(library(fatbin(entry(CUBINS["sm_80"], 80))))
    assert main(["compare", old.name, binary.name, "--top", "1"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{old.name} → {binary.name}: code: 5 new; machine code the same in 5 of 5"
    assert lines[2].startswith("new ") and lines[2].endswith("(sm_90a)") and lines[3].startswith("… 4 more")
    assert main(["compare", "pkg.*-310-*.so", run, "--format", "json"]) == Exit.OK, "a pattern, a run"
    data = json.loads(capsys.readouterr().out)
    assert data["before"]["name"] == "pkg.*-310-*.so" and data["machine_code"] == {"same": 5, "both": 5}
    assert main(["compare", "absent.so", binary.name]) == Exit.USAGE
    assert "absent.so: expected a run's id or folder" in capsys.readouterr().err
