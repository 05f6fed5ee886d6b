"""``flashcore audit --base``: a real repository with a ``flashcore.toml`` and a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.cli.main import main
from tests.support.fatbins import CUBINS, both, entry, fatbin, library
from tests.support.repositories import git

LIMITS = """
[audit]
files = ["*.so", "*.fatbin"]
max = {registers = 40, spill_store_bytes = 60}
except = ["stack"]
baseline = "audit.txt"
[[audit.waiver]]
budget = "max_registers"
accepted = 41
reason = "for a week"
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ops.so").write_bytes(library(both()))
    Path("more.fatbin").write_bytes(both())
    Path("flashcore.toml").write_text(LIMITS)
    Path(".gitignore").write_text("*.so\n*.fatbin\n")
    assert main(["audit", "--save-baseline", "audit.txt"]) == 0
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "limits")


def edit(file: str, old: str, new: str) -> None:
    path = Path(file)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def audit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str]]:
    capsys.readouterr()
    code = main(["audit", "--base", "HEAD", "--format", "json", *words])
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    return code, {v["subject"]["variant"]: v["status"] for v in verdicts if v["budget"] == "base"}


def test_what_is_as_in_the_base_or_tighter_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(capsys) == (0, {})
    edit("flashcore.toml", "registers = 40", "registers = 36")
    edit("flashcore.toml", 'except = ["stack"]', "min = {registers = 1}")
    assert audit(capsys)[1] == {}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("registers = 40", "registers = 41", "budget:max_registers"),
        (", spill_store_bytes = 60", "", "budget:max_spill_store_bytes"),
        ('["stack"]', '["stack", "warn*"]', "budget:max_registers"),
        ("accepted = 41", "accepted = 42", "waiver:max_registers"),
        ('baseline = "audit.txt"', "", "baseline:*"),
        (', "*.fatbin"', "", "files:*.fatbin"),
    ],
)
def test_each_loosened_limit_fails_unless_it_is_allowed(
    old: str, new: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("flashcore.toml", old, new)
    code, looser = audit(capsys)
    assert code == 1 and looser[key] == "fail"
    code, looser = audit(capsys, *(f"--allow={name}" for name in looser))
    assert code != 1 and looser[key] == "waived"


def test_a_loosened_line_of_the_baseline_fails(capsys: pytest.CaptureFixture[str]) -> None:
    edit("audit.txt", "ops sm_80 shared * registers 18", "ops sm_80 shared * registers 32")
    assert audit(capsys) == (1, {"baseline:ops": "fail"})


def test_an_arch_that_goes_with_its_lines_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ops.so").write_bytes(library(fatbin(entry(CUBINS["sm_80"], 80))))
    lines = Path("audit.txt").read_text().replace("ops sm_80,sm_90a", "ops sm_80").splitlines()
    Path("audit.txt").write_text("\n".join(line for line in lines if not line.startswith("ops sm_90a")) + "\n")
    assert audit(capsys) == (1, {"variant:ops": "fail"})


def test_a_file_that_goes_with_its_lines_is_shown_and_fails_where_another_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Path("audit.txt").read_text().splitlines()
    Path("audit.txt").write_text("\n".join(line for line in lines if not line.startswith("more")) + "\n")
    assert audit(capsys, "ops.so") == (0, {"variant:more_fatbin": "waived"})
    Path("more.fatbin").rename("other.fatbin")
    assert audit(capsys) == (1, {"variant:more_fatbin": "fail"})
