"""The list of recorded runs, and what is proposed in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.records import store
from tests import factory

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
    assert main(["runs"]) == Exit.OK
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "suite", "GPU", "variants", "checked", "timed", "profiled"]
    assert [line.split()[0] for line in lines] == [*IDS] and " none " in lines[1]


def test_a_run_tells_whether_the_tree_differed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = factory.environment(git_dirty=True)
    store.write(factory.bare_record(id=IDS[0], environment=there), Path("profiles", IDS[0]))
    assert main(["runs", "--format", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["runs"][0]["dirty"] is True


def test_a_damaged_run_is_skipped_with_a_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "profiles" / IDS[0] / store.HEADER).write_text("[]")
    assert main(["runs"]) == Exit.OK
    out, err = capsys.readouterr()
    assert IDS[0] not in out and IDS[1] in out and f"skipped run {IDS[0]}" in err


def test_no_run_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--profiles", str(tmp_path)]) == Exit.OK
    assert "no recorded run; `flashcore profile` records one" in capsys.readouterr().out
