"""``flashcore audit --sass``: what a disassembler shows of the kernels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flashcore.build import static_facts as static
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.features.audit.inventory import inventory
from flashcore.features.audit.record import facts
from flashcore.machine import toolchain
from flashcore.model.record import Artifact, Fact
from tests.conftest import ROOT
from tests.support.cubins import artifact as artifact
from tests.support.cubins import text
from tests.support.fatbins import CUBINS

KERNEL = """.text.spills:
        /*0000*/              @!P0 LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2.64] ;
        /*0010*/                   LDS.128 R4, [R2] ;
        /*0020*/                   LDG.E.LTC128B R4, [R2.64] ;
        /*0030*/                   STL.128 [R1], R4 ;
        /*0040*/                   LDC.128 R4, c[0x0] ;
        /*0050*/                   DMMA.884 R4, R5, R6, R7 ;
        /*0060*/                   IMMA.16816.S8.S8 R4, R5, R6, R7 ;
        /*0070*/                   HFMA2.MMA R4, R5, R6, R7 ;
        /*0080*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], !UPT ;
        /*0090*/                   UBLKCP.S.G [UR4], [UR6], UR8 ;
        /*00a0*/                   UTMASTG.2D [UR4], [UR6] ;
        /*00b0*/                   UTMACMDFLUSH ;
"""


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A listing in the form that every disassembler prints."""
    tool, path = tmp_path / "nvdisasm", tmp_path / "listing"
    tool.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\ncat {path}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(toolchain, "optional_tool", lambda _: tool)
    path.write_text(KERNEL)
    return path


def shown(path: Path, kernel: str = "*") -> dict[str, dict[str, Fact]]:
    """Kernel → the facts of its disassembled code."""
    kernels: dict[str, dict[str, Fact]] = {}
    for fact in facts(inventory([path], [kernel])):
        if fact.source == "sass":
            kernels.setdefault(fact.subject.kernel or "", {})[fact.name] = fact
    return kernels


def test_the_facts_are_those_of_a_suite(artifact: Artifact, tmp_path: Path, listing: Path) -> None:
    listing.write_text(text("static_sm_90a.sass"))
    file = tmp_path / "one.cubin"
    file.write_bytes(CUBINS["sm_90a"])
    results = shown(file)
    assert results.keys() == {"tensor<4>", "shared", "spills", "stack", "warned"}
    compared = 0
    for fact in static.facts(artifact):
        if fact.source == "sass" and fact.subject.kernel != "stack":  # only a log shows that it has no spills
            result = results[fact.subject.kernel or ""][fact.name]
            assert (result.value, result.unit, result.detail) == (fact.value, fact.unit, fact.detail)
            compared += 1
    assert compared > 80
    unmeasured = results["stack"]["local_memory"]
    assert unmeasured.value is None and "stack frame has 256 B" in unmeasured.note


def test_instructions_of_every_generation_are_counted(file: Path, listing: Path) -> None:
    results = shown(file)["spills"]
    counts = {"sass_tensor": 3, "sass_tma": 2, "sass_128": 2, "sass_ldgsts": 1, "sass_stl": 1, "sass_instructions": 12}
    assert {name: results[name].value for name in counts} == counts


@pytest.mark.parametrize(("missing", "note"), [(True, "no nvdisasm on this machine"), (False, "could not read it")])
def test_code_that_is_not_shown_is_unmeasured(
    missing: bool, note: str, file: Path, listing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing.unlink()
    if missing:
        monkeypatch.setattr(toolchain, "optional_tool", lambda _: None)
    results = [fact for of_kernel in shown(file).values() for fact in of_kernel.values()]
    assert len(results) > 100
    assert all(fact.value is None and note in fact.note for fact in results)
    assert main(["audit", str(file), "--max", "sass_local_loop=0"]) == Exit.UNMEASURED


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ([], 0),
        (["--kernel", "spills"], 0),
        (["--sass"], 2),
        (["--sass", "--kernel", "spills"], 2),
        (["--sass", "--kernel", "tensor<4>*"], 2),
        (["--sass", "--kernel", "absent"], 0),
        (["--max", "registers=255"], 0),
        (["--min", "sass_tensor=0"], 2),
    ],
)
def test_only_cubins_with_selected_kernels_are_disassembled(
    options: list[str],
    calls: int,
    file: Path,
    listing: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(file.parent)
    main(["audit", str(file), *options])
    log = listing.with_name("calls")
    assert (log.read_text().count("x") if log.is_file() else 0) == calls
    assert ("10 of the kernels disassembled in that time" in capsys.readouterr().out) == bool(calls)


@pytest.mark.parametrize("place", ["budget", "baseline"])
def test_what_flashcore_toml_limits_is_disassembled(
    place: str, file: Path, listing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    form = '[audit]\nbaseline = "old.txt"\n'
    if place == "budget":
        form = '[[audit.budget]]\nname = "tensor"\nfact = "sass_tensor"\nmin = 3\nsource = "x"\nkernels = ["spills"]\n'
    else:
        main(["audit", str(file), "--sass", "--save-baseline", "old.txt"])
        assert "sass_stl" in Path("old.txt").read_text()
    Path("flashcore.toml").write_text(form)
    assert main(["audit", str(file)]) == Exit.OK
    listing.write_text(KERNEL.replace("LDS.128", "STL").replace("IMMA", "FFMA"))
    assert main(["audit", str(file)]) == Exit.FAILED


DECISIONS = """
[[audit.budget]]
name = "wide"
must = "ldg.128"
function = "load"
kernels = ["copy_kernel*"]
source = "x"
[[audit.budget]]
name = "loops"
must_not = "{name}"
mark = "wide store"
kernels = ["copy_kernel*"]
source = "x"
"""


@pytest.mark.slow
def test_compiler_decisions_are_judged_at_the_source_that_was_compiled(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if toolchain.optional_tool("nvdisasm") is None:
        pytest.skip("tool: no nvdisasm on this machine")
    monkeypatch.chdir(tmp_path)
    source: str = shutil.copy(str(ROOT / "benchmarks" / "decided" / "copy.cu"), str(tmp_path))
    command = [compiler.path, "-O3", "-lineinfo", "-arch=sm_90a", "-cubin", source, "-o", "copy.cubin"]
    subprocess.run([*map(str, command)], check=True)
    Path("flashcore.toml").write_text(DECISIONS.format(name="loop"))
    assert main(["audit", "copy.cubin"]) == Exit.OK
    Path("flashcore.toml").write_text(DECISIONS.format(name="stg.128"))
    capsys.readouterr()
    assert main(["audit", "copy.cubin", "--format", "github"]) == Exit.FAILED
    line = next(n for n, text in enumerate(Path(source).read_text().splitlines(), 1) if "<Pack*>(to" in text)
    assert f"file=copy.cu,line={line}," in capsys.readouterr().out
    with Path(source).open("a") as file:
        file.write("// one line more\n")
    assert main(["audit", "copy.cubin"]) == Exit.UNMEASURED
    assert "the line table does not fit copy.cu" in capsys.readouterr().out
    Path(source).unlink()
    assert main(["audit", "copy.cubin"]) == Exit.UNMEASURED


def test_without_a_disassembler_decisions_are_unmeasured(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(toolchain, "optional_tool", lambda name: None)
    Path("flashcore.toml").write_text('[[audit.budget]]\nname = "a"\nmust_not = "local"\nsource = "x"\n')
    assert main(["audit", str(file)]) == Exit.UNMEASURED
    assert "no nvdisasm on this machine" in capsys.readouterr().out


def test_a_name_that_is_no_decision_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    Path("flashcore.toml").write_text('[[audit.budget]]\nname = "a"\nmust = "wgma"\nsource = "x"\n')
    assert main(["audit", str(file)]) == Exit.USAGE
