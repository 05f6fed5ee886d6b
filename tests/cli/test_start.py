"""What `flashcore` alone prints in a folder, and its exit code."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.cli import start
from flashcore.errors import Exit
from flashcore.records import store
from tests import factory
from tests.conftest import TOY


def test_each_kind_of_file_proposes_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def proposed() -> list[str]:
        start.show()
        out = capsys.readouterr().out
        assert len(out.splitlines()) <= 12
        return [line.split("  ")[1] for line in out.partition("next:\n")[2].splitlines()]

    monkeypatch.chdir(tmp_path)
    assert proposed() == ["flashcore init my_suite", "flashcore --help"]
    store.write(factory.bare_record(), folder := store.begin(Path("profiles"), "20260103T000000Z-0001"))
    store.complete(folder)
    assert proposed()[:2] == ["flashcore explain", "flashcore report"]
    (tmp_path / "step.ncu-rep").touch()
    (tmp_path / "kernel.cubin").touch()
    assert proposed()[:2] == ["flashcore import step.ncu-rep", "flashcore audit kernel.cubin"]
    for name in ("toy", "toys"):
        shutil.copytree(TOY, tmp_path / "kernels" / name)
        of_suite = "" if name == "toy" else " --suite kernels/toy"
        assert proposed()[0] in (f"flashcore gate{of_suite}", f"flashcore profile{of_suite}")


@pytest.mark.parametrize("terminal", [True, False])
def test_without_a_command_a_terminal_shows_the_folder_and_a_pipe_the_usage(tmp_path: Path, terminal: bool) -> None:
    reader, writer = pty.openpty() if terminal else os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as shown:
        process = subprocess.Popen([sys.executable, "-m", "flashcore"], stdout=writer, cwd=tmp_path)
        os.close(writer)
        assert process.wait(60) == Exit.USAGE, "a script whose command is empty by mistake must not pass for a gate"
        text = shown.read(1 << 16).decode()
    assert ("next:" in text) is terminal and ("usage: flashcore" in text) is not terminal
