"""The limits of ``flashcore audit``: options and ``flashcore.toml``."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.records import store
from tests.support.fatbins import both, entry, fatbin, library

FILE = "pkg.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a library: its kernel ``spills`` spills 56 B, whether ``stack`` does is not known."""
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_bytes(library(both()))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--max spill_store_bytes=0 --except stack --except spill*", Exit.OK),
        ("--max spill_store_bytes=56 --except stack", Exit.OK),
        ("--max spill_store_bytes=55 --except stack", Exit.FAILED),
        ("--max spill_store_bytes=56", Exit.UNMEASURED),
        ("--min registers=8", Exit.OK),
        ("--min registers=9", Exit.FAILED),
        ("--max theoretical_occupancy=100", Exit.UNMEASURED),  # a fact that an audit does not record
        ("--max registers=255 --except *", Exit.UNMEASURED),
        ("--format table", Exit.UNMEASURED),  # nothing was judged
    ],
)
def test_limits_decide_the_exit_code(options: str, code: Exit) -> None:
    assert main(["audit", FILE, *options.split()]) == code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max spil_store_bytes=0", "did you mean spill_store_bytes?"),
        ("--max isolated_p50=3", "max_isolated_p50"),
        ("--max registers=30 --max registers=300", "found 'max_registers' 2 times"),
        ("--max registers=30 --min registers=31 --except stak", "did you mean stack?"),
        ("--max registers=30 --kernel stak", "kernel: expected globs that match a kernel, found 'stak'"),
        ("--kernel stak", "did you mean stack?"),
        ("--kernel arned", "did you mean '*arned*'?"),
        ("--max registers=30 --except arne*", "did you mean '*arne*'?"),
        ("absent.so --max registers=255", "absent.so: expected a file or folder"),
        ("--baseline absent.txt", "no such file"),
        (f"--baseline {FILE}", "expected a baseline"),
    ],
)
def test_what_would_check_nothing_is_refused(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", FILE, *options.split()]) == Exit.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--max=registers", "--max=registers=many", "--max=registers=inf", "--min=registers=nan"]
)
def test_a_limit_needs_a_number(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["audit", FILE, option])
    assert "expected FACT=NUMBER" in capsys.readouterr().err


def test_no_exception_hides_a_part_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("half.fatbin").write_bytes(fatbin(entry(b"\x7fELF damaged", 90)))
    arguments = ["audit", FILE, "half.fatbin", "--max", "registers=255", "--except", "[!a-t]*", "--except", "unread*"]
    assert main(arguments[:5]) == main(["audit", FILE, "half.fatbin"]) == Exit.UNMEASURED
    capsys.readouterr()
    assert main(arguments) == Exit.USAGE  # it is no kernel
    Path("unread.fatbin").write_bytes(fatbin(entry(b"\x7fELF damaged", 90)))
    toml('budget = [{name = "one", fact = "registers", kernels = ["warned"], max = 255, source = "design"}]')
    assert main(["audit", FILE, "half.fatbin"]) == Exit.UNMEASURED
    assert "readable" in capsys.readouterr().out


def test_a_file_with_intermediate_code_only_is_unmeasured(capsys: pytest.CaptureFixture[str]) -> None:
    Path("later.fatbin").write_bytes(fatbin(entry(b".version 8.0\n.target sm_90\n", 90, kind=1)))
    assert main(["audit", FILE, "later.fatbin", "--max", "registers=255"]) == Exit.UNMEASURED
    assert "later_fatbin" in capsys.readouterr().out


def test_both_of_two_files_of_one_name_are_judged() -> None:
    for folder, content in (("a", fatbin()), ("b", both())):
        Path(folder).mkdir()
        Path(folder, FILE).write_bytes(library(content))
    assert main(["audit", f"a/{FILE}", f"b/{FILE}", "--max", "registers=20"]) == Exit.FAILED


def test_a_display_filter_does_not_narrow_what_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", FILE, "--kernel", "warned", "--max", "registers=20"]) == Exit.FAILED
    table = capsys.readouterr().out.partition("FAILED")[0]
    assert "warned" in table and "spills" not in table


def test_every_format_shows_the_failures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", FILE, "--max", "spill_store_bytes=0", "--except", "stack", "--keep", "--format", "json"]
    files = {"sarif": "s.json", "junit": "j.xml", "gitlab": "g.json", "github": "h.txt", "table": "t.txt"}
    assert main([*arguments, *(f"--format={form}={file}" for form, file in files.items())]) == Exit.FAILED
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit_code"] == 1
    assert store.read(Path(printed.err.splitlines()[-1])).suite.budgets[0].name == "max_spill_store_bytes"
    assert len(json.loads(Path("s.json").read_text())["runs"][0]["results"]) == 1  # of two archs
    assert len(json.loads(Path("g.json").read_text())) == 1
    assert len(ElementTree.parse("j.xml").findall(".//failure")) == 2
    assert Path("h.txt").read_text().startswith("::error title=flashcore%3A failed%3A max_spill_store_bytes::")


def test_a_kept_record_is_judged_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", FILE, "--max", "spill_store_bytes=0", "--except", "stack", "--keep"]) == Exit.FAILED
    run = capsys.readouterr().out.splitlines()[-1]
    assert main(["gate", run]) == Exit.FAILED


# --- flashcore.toml -------------------------------------------------------------------------------


def toml(text: str) -> None:
    Path("flashcore.toml").write_text(f"[audit]\n{text}\n")


WAIVED = """
files = ["*.so"]
max = {spill_store_bytes = 0}
except = ["stack"]
[[audit.waiver]]
budget = "max_spill_store_bytes"
kernels = ["spills"]
accepted = 60
reason = "in the cold path"
"""


def test_the_table_has_files_limits_exceptions_and_waivers(capsys: pytest.CaptureFixture[str]) -> None:
    toml(WAIVED)
    assert main(["audit"]) == Exit.OK
    text = capsys.readouterr().out
    assert "2 misses  all variants: accepted 60  in the cold path" in text
    assert main(["audit", FILE, "--max", "registers=20"]) == Exit.FAILED  # options add to it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mx = {registers = 8}", "flashcore.toml:2: audit.mx: expected no such key (did you mean max?)"),
        ("max = {registers = nan}", "expected a finite number"),
        ("max = {registers = '8'}", "expected a number"),
        ("max = {register = 8}", "did you mean registers?"),
        ("except = ['gone_*']", "expected globs that match a kernel"),
        ("waiver = [{budget = 'max_regs', accepted = 1, reason = 'x'}]", "the name of a budget"),
        ("budget = [{name = 'a', fact = 'registers', max = 1, archs = ['sm_75'], source = 'x'}]", "suite's arch"),
        ("[audits]", "flashcore.toml:2: audits: expected no such key"),
        ("[audit]", "not valid TOML"),
    ],
)
def test_each_mistake_in_it_is_named(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    toml(text)
    assert main(["audit", FILE]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_without_files_anywhere_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["audit"])
    toml("")
    assert main(["audit"]) == Exit.USAGE
    assert "below [audit] in flashcore.toml" in capsys.readouterr().err


@pytest.mark.parametrize("declared", [True, False])
def test_a_code_host_shows_failures_at_the_projects_table(declared: bool) -> None:
    """GitHub refuses all results if one has no file, and GitLab drops those."""
    limits = [] if declared else ["--max=registers=8"]
    if declared:
        toml("max = {registers = 8}")
    outputs = {"sarif": "s.json", "gitlab": "g.json", "github": "h.txt"}
    assert main(["audit", FILE, *limits, *(f"--format={form}={file}" for form, file in outputs.items())]) == Exit.FAILED
    for result in json.loads(Path("s.json").read_text())["runs"][0]["results"]:
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "flashcore.toml"
    assert json.loads(Path("g.json").read_text())[0]["location"] == {"path": "flashcore.toml", "lines": {"begin": 1}}
    assert Path("h.txt").read_text().startswith("::error file=flashcore.toml,line=1,title=") is declared


def test_an_expired_waiver_does_not_hold() -> None:
    toml(f"{WAIVED}expires = 2020-01-31")
    assert main(["audit"]) == Exit.FAILED


# --- the baseline ---------------------------------------------------------------------------------


def baseline(old: str = "", new: str = "") -> None:
    """Saves a baseline, and changes a line of it."""
    assert main(["audit", FILE, "--save-baseline", "audit.txt"]) == Exit.OK
    lines = Path("audit.txt").read_text()
    assert old in lines
    Path("audit.txt").write_text(lines.replace(old, new, 1))
    toml(f"files = ['{FILE}']\nbaseline = 'audit.txt'")


def test_the_same_files_are_as_in_their_baseline() -> None:
    baseline()
    assert main(["audit"]) == main(["audit", FILE, "--baseline", "audit.txt"]) == Exit.OK


def test_a_kernel_that_is_worse_than_the_baseline_fails_and_keeps_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    baseline("pkg sm_80 spills * spill_store_bytes 56", "pkg sm_80 spills * spill_store_bytes 51")
    assert main(["audit"]) == Exit.FAILED
    assert "baseline_spill_store_bytes" in capsys.readouterr().out
    before = Path("audit.txt").read_text()
    assert main(["audit", "--save-baseline", "audit.txt"]) == Exit.FAILED
    assert Path("audit.txt").read_text() == before


def test_saving_takes_improvements_over() -> None:
    baseline("pkg sm_80 spills * spill_store_bytes 56", "pkg sm_80 spills * spill_store_bytes 64")
    assert main(["audit"]) == Exit.OK
    assert main(["audit", "--save-baseline", "audit.txt"]) == Exit.OK
    assert "pkg sm_80 spills * spill_store_bytes 56" in Path("audit.txt").read_text()


@pytest.mark.parametrize(("registers", "code"), [(8, Exit.FAILED), (32, Exit.OK)])
def test_one_baseline_is_compared_with_while_another_is_written(registers: int, code: Exit) -> None:
    line = "pkg sm_80,sm_90a spills * registers"
    baseline(f"{line} 32", f"{line} {registers}")
    assert main(["audit", FILE, "--baseline", "audit.txt", "--save-baseline", "new.txt"]) == code
    assert f"{line} 32" in Path("new.txt").read_text() and f"{line} {registers}" in Path("audit.txt").read_text()


@pytest.mark.parametrize("place", ["pkg sm_80 gone", "pkg sm_100 spills", "lib sm_80 spills"])
def test_a_kernel_an_arch_or_a_file_that_vanished_is_unmeasured(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    registers = "pkg sm_80,sm_90a spills * registers"
    baseline(registers, f"{place} * registers 32\n{registers}")
    assert main(["audit"]) == Exit.UNMEASURED
    file, arch, kernel = place.split()
    assert f"{file}/{kernel} ({arch})" in capsys.readouterr().out
    assert main(["audit", "--save-baseline", "audit.txt"]) == main(["audit"]) == Exit.OK


def test_no_other_kernel_is_taken_for_one_that_vanished(capsys: pytest.CaptureFixture[str]) -> None:
    baseline()
    Path("audit.txt").write_text(Path("audit.txt").read_text().replace("pkg sm_80 warned", "pkg sm_80 gone"))
    assert main(["audit"]) == Exit.UNMEASURED
    assert "renamed" not in capsys.readouterr().out


def test_an_exception_holds_for_the_baseline_too(capsys: pytest.CaptureFixture[str]) -> None:
    baseline("pkg sm_80 spills * spill_store_bytes 56", "pkg sm_80 spills * spill_store_bytes 51")
    assert main(["audit", "--except", "spills"]) == Exit.OK
    assert "not compared: except" in capsys.readouterr().out


def test_a_waiver_may_be_of_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    baseline("pkg sm_80 spills * spill_store_bytes 56", "pkg sm_80 spills * spill_store_bytes 51")
    with Path("flashcore.toml").open("a") as stream:
        stream.write('[[audit.waiver]]\nbudget = "baseline_spill_store_bytes"\naccepted = 56\nreason = "a new tile"\n')
    assert main(["audit"]) == Exit.OK


def test_a_baseline_of_other_files_is_refused() -> None:
    baseline("suite audit", "suite other")
    assert main(["audit"]) == Exit.USAGE


# --- files without kernels ------------------------------------------------------------------------

WITHOUT_KERNELS = library(fatbin(entry(library(b"counter", ".nv.global"), 90)))


def test_code_without_kernels_has_nothing_to_limit(capsys: pytest.CaptureFixture[str]) -> None:
    Path("host.so").write_bytes(WITHOUT_KERNELS)
    assert main(["audit", "*.so", "--max", "registers=32"]) == Exit.OK
    assert "10 of 10" in capsys.readouterr().out
    assert main(["audit", "host.so", "--max", "registers=32"]) == Exit.UNMEASURED  # nothing was judged


def test_a_file_that_lost_its_kernels_is_unmeasured(capsys: pytest.CaptureFixture[str]) -> None:
    Path("host.so").write_bytes(library(both()))
    assert main(["audit", "*.so", "--save-baseline", "audit.txt"]) == Exit.OK
    Path("host.so").write_bytes(WITHOUT_KERNELS)
    assert main(["audit", "*.so", "--baseline", "audit.txt"]) == Exit.UNMEASURED
    shown = capsys.readouterr().out
    assert "host/shared (sm_80)" in shown and "10 kernels in 1 file" in shown


def test_a_folder_without_code_is_unmeasured() -> None:
    Path("empty").mkdir()
    assert main(["audit", "empty", "--max", "registers=32"]) == Exit.UNMEASURED
