"""The list of recorded runs, and what is proposed in a folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import flashcore as fc
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


def zeros(data: bytes) -> bytes:
    """Damaged in its middle, as by a disk."""
    middle = len(data) // 2
    return data[: middle - 20] + bytes(40) + data[middle + 20 :]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (store.HEADER, lambda _: b"[]"),
        (store.HEADER, lambda _: b"[" * 200_000),
        (store.HEADER, lambda data: data.replace(b'"NVIDIA H200"', b'["NVIDIA H200"]')),
        (store.HEADER, lambda data: data.replace(b'"command": "make profile"', b'"command": 1e999')),
        (store.FACTS, zeros),
        (store.FACTS, lambda data: data[: len(data) // 2]),
        (store.FACTS, lambda _: gzip.compress(b'{"subjects": [], "details": [], "facts": [[0, 1]]}')),
        (store.SAMPLES, zeros),
    ],
)
@pytest.mark.parametrize("seal", [False, True])
def test_a_damaged_run_is_skipped_with_a_warning(
    file: str, damage: Callable[[bytes], bytes], seal: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "profiles" / IDS[0]
    store.write(replace(factory.record(), id=IDS[0]), folder)
    data = (folder / file).read_bytes()
    assert data != damage(data)
    (folder / file).write_bytes(damage(data))
    if seal:
        store.seal(folder)
    assert main(["runs"]) == main(["report", IDS[1], "-o", "pages"]) == Exit.OK
    out, err = capsys.readouterr()
    assert IDS[0] not in out and IDS[1] in out and f"skipped run {IDS[0]}" in err


def test_no_run_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--profiles", str(tmp_path)]) == Exit.OK
    assert "no recorded run; `flashcore profile` records one" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--records", "--profiles"])
@pytest.mark.parametrize("name", ["gone", "gone.run.zip"])
def test_a_place_that_the_user_names_must_exist(
    option: str, name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", option, name]) == Exit.USAGE
    assert f"{name}: expected a" in capsys.readouterr().err


def test_the_usual_folder_of_runs_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    assert fc.runs().empty and main(["runs"]) == Exit.OK
