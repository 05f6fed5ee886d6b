"""Verdicts as files, and their signatures."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.plugins.judge.verdict import Verdict, write


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="tool: no ssh-keygen")
def test_a_signature_is_of_the_verdicts_bytes(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    one = Verdict(candidate="a" * 64, suite="s", suite_hash="", untrusted={})
    path = write(one, tmp_path / "v", str(key))
    check = ["ssh-keygen", "-Y", "check-novalidate", "-n", "flashcore", "-s", f"{path}.sig"]
    assert subprocess.run(check, input=path.read_bytes(), check=False, capture_output=True).returncode == 0
    changed = path.read_bytes().replace(b"unmeasured", b"accepted")
    assert subprocess.run(check, input=changed, check=False, capture_output=True).returncode != 0
    write(one, tmp_path / "v", None)
    assert not Path(f"{path}.sig").exists()  # of another verdict
    with pytest.raises(UsageError, match="expected an SSH key that can sign"):
        write(one, tmp_path / "v", str(tmp_path / "none"))


def test_another_suite_gpu_outcome_or_candidate_overwrites_no_verdict(tmp_path: Path) -> None:
    one = Verdict(candidate="a" * 64, suite="s", suite_hash="1", untrusted={}, device={"uuid": "GPU-1"})
    others = (
        replace(one, suite_hash="2"),
        replace(one, device={"uuid": "GPU-2"}),
        replace(one, candidate="a" * 63 + "b"),
        replace(one, status="rejected"),
        replace(one, status="accepted"),
    )
    assert len({write(each, tmp_path, None) for each in (one, *others, one)}) == 6


@pytest.mark.parametrize("place", ["suite", "problems"])
def test_a_key_that_a_candidates_compiler_could_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    suite = Path(shutil.copytree(Path(__file__).parent / "suite", tmp_path / "suite"))
    (tmp_path / "problems").mkdir()
    (suite / "problem.py").rename(tmp_path / "problems" / "problem.py")
    text = (suite / "suite.toml").read_text().replace('"problem.py', '"../problems/problem.py')
    (suite / "suite.toml").write_text(text)
    key = tmp_path / place / "key"
    key.touch()
    assert main(["judge", str(suite), str(suite), "--key", str(key)]) == Exit.USAGE
    assert "outside of what candidates' compilers may read" in capsys.readouterr().err
