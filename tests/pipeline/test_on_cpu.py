"""A problem's file and its peers, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.cli.main import main

pytestmark = pytest.mark.usefixtures("forked")


def test_peers_are_checked_on_a_cpu_and_nothing_is_recorded(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starts a process that imports torch: what peers do is seen nowhere else."""
    suite, peer = copy(), '\n[variant.half]\ncallable = "peers.py:half"\ntechnique = "wrong"\nroof = "fp32"\n'
    with (suite / "peers.py").open("a") as file:
        file.write("\n\ndef half(x, factor):\n    return x * factor / 2\n")
    with (suite / "suite.toml").open("a") as file:
        file.write(peer + 'tolerance = "rounded_once"\ntolerance_reason = "one multiplication"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(suite), "--repeats", "2", "-q"]) == 1
    told = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]}
    assert told == {"half/tail": "failed", "half/small": "failed", "torch_mul/tail": "ok", "torch_mul/small": "ok"}
    assert not (tmp_path / "profiles").exists()


def test_a_suite_without_peers_has_nothing_to_check(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(copy()), "--variant", "plain", "-q"]) == 2
    assert "expected a reference to check on a CPU, found none" in capsys.readouterr().err
