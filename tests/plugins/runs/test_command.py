"""The list of recorded runs, and what is proposed in a folder."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flashcore as fc
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.records import store
from tests import factory
from tests.conftest import TOY

IDS = ("20260103T000000Z-0001", "20260102T000000Z-0001")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two runs."""
    monkeypatch.chdir(tmp_path)
    for name, gpu in zip(IDS, ("NVIDIA H200", None), strict=True):
        record = factory.bare_record(id=name, environment=factory.environment(gpu=gpu))
        store.write(record, folder := store.begin(Path("profiles"), name))
        store.complete(folder)
    return tmp_path


def test_runs_are_listed_newest_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = store.read(here / "profiles" / IDS[0])
    assert main(["runs", "--format", "json"]) == Exit.OK
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(r["id"], r["gpu"], r["place"]) for r in runs] == [
        (IDS[0], "NVIDIA H200", f"profiles/{IDS[0]}"),
        (IDS[1], None, f"profiles/{IDS[1]}"),
    ]
    done = [x.stage for x in record.outcomes if x.status == "ok"]
    assert runs[0]["checked"] == done.count("check") and runs[0]["timed"] == done.count("bench")
    assert main(["runs"]) == Exit.OK
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "suite", "GPU", "variants", "checked", "timed", "profiled"]
    assert [line.split()[0] for line in lines] == [*IDS] and " none " in lines[1]


def test_a_damaged_run_is_skipped_with_a_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "profiles" / IDS[0] / store.HEADER).write_text("[]")
    assert main(["runs"]) == Exit.OK
    out, err = capsys.readouterr()
    assert IDS[0] not in out and IDS[1] in out and f"skipped run {IDS[0]}" in err


def test_no_run_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--profiles", str(tmp_path)]) == Exit.OK
    assert "no recorded run; `flashcore profile` records one" in capsys.readouterr().out


def test_the_api_gives_the_same_as_a_frame(here: Path) -> None:
    pytest.importorskip("pandas")
    frame = fc.runs()
    assert [*frame["id"]] == [*IDS] and frame["gpu"].notna().tolist() == [True, False]


def test_each_kind_of_file_proposes_a_command(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def proposed() -> list[str]:
        assert main(["start"]) == Exit.OK
        out = capsys.readouterr().out
        assert len(out.splitlines()) <= 12
        return [line.split("  ")[1] for line in out.partition("next:\n")[2].splitlines()]

    assert proposed()[:2] == ["flashcore explain", "flashcore report"]
    (here / "step.ncu-rep").touch()
    (here / "kernel.cubin").touch()
    assert proposed()[:2] == ["flashcore import step.ncu-rep", "flashcore audit kernel.cubin"]
    shutil.copytree(TOY, here / "kernels" / "toy")
    assert proposed()[0] in ("flashcore gate", "flashcore profile")
    (here / "empty").mkdir()
    monkeypatch.chdir(here / "empty")
    assert proposed() == ["flashcore init my_suite", "flashcore --help"]


@pytest.mark.parametrize("terminal", [True, False])
def test_without_a_command_a_terminal_shows_the_folder_and_a_pipe_the_usage(here: Path, terminal: bool) -> None:
    reader, writer = pty.openpty() if terminal else os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as shown:
        process = subprocess.Popen([sys.executable, "-m", "flashcore"], stdout=writer, cwd=here)
        os.close(writer)
        assert process.wait(60) == Exit.USAGE, "a script whose command is empty by mistake must not pass for a gate"
        text = shown.read(1 << 16).decode()
    assert ("next:" in text) is terminal and ("usage: flashcore" in text) is not terminal
