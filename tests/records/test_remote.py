"""Runs of a store elsewhere: copied once, read like others; what is missing is named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import options
from flashcore.cli.main import main
from flashcore.errors import Exit, FlashcoreError
from flashcore.records import lookup
from flashcore.records import packed as pack
from flashcore.records.index import Index
from flashcore.records.remote import mirrored
from tests.support.late import needs, optional
from tests.support.nights import run_of, write

pytestmark = needs("numpy")
fsspec = optional("fsspec")


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with a packed run, and another run in its folder."""
    write(tmp_path / "made", 2, sigma=0)
    store = "memory://runs" if request.param == "memory" else f"file://{tmp_path / 'store'}"
    files, root = fsspec.core.url_to_fs(store)
    files.makedirs(root, exist_ok=True)
    files.pipe(f"{root}/{run_of(0)}.run.zip", pack.packed(tmp_path / "made" / run_of(0)))
    files.put(str(tmp_path / "made" / run_of(1)), f"{root}/{run_of(1)}", recursive=True)
    files.pipe(f"{root}/README.md", b"no run")
    yield store
    files.rm(root, recursive=True)


def runs(place: Path) -> list[str]:
    return [p.run for p in Index([place]).points("time", "fast", "mission")]


def test_runs_are_copied_once_and_read_like_others(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = tmp_path / "profiles"
    place = mirrored(url, profiles)
    assert runs(place) == [run_of(0), run_of(1)] and not list(place.glob("*.partial"))
    files, root = fsspec.core.url_to_fs(url)
    copied: list[str] = []
    copy = type(files).get_file

    def counted(store: Any, name: str, *words: Any) -> None:
        copied.append(name)
        copy(store, name, *words)

    monkeypatch.setattr(type(files), "get_file", counted)
    assert mirrored(url, profiles) == place and copied == [], "nothing is new"
    write(tmp_path / "made", 3, first=2)
    files.pipe(f"{root}/{run_of(2)}.run.zip", pack.packed(tmp_path / "made" / run_of(2)))
    assert len(runs(mirrored(url, profiles))) == 3 and len(copied) == 1
    monkeypatch.chdir(tmp_path)
    assert main(["runs", "--profiles", "empty", "--records", url]) == Exit.OK
    assert run_of(2) in capsys.readouterr().out


def test_settings_have_the_copies_of_a_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    options.add_profiles(parser)
    options.add_records(parser)
    arguments = parser.parse_args(["--records", url, "--records", "made"])
    made = options.settings(arguments, suite="")
    assert made.places == options.places(arguments)
    assert [run.name for run in lookup.all_runs(made.places[:2])] == [run_of(1), run_of(0)]


def test_a_copy_that_broke_off_is_no_run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = fsspec.core.url_to_fs(url)
    copy = type(files).get_file

    def breaks(store: Any, name: str, *words: Any) -> None:
        if name.endswith("facts.json.gz"):
            raise OSError("connection lost")
        copy(store, name, *words)

    monkeypatch.setattr(type(files), "get_file", breaks)
    with pytest.raises(FlashcoreError, match="connection lost"):
        mirrored(url, tmp_path)
    monkeypatch.setattr(type(files), "get_file", copy)
    assert len(runs(next((tmp_path / "remote").iterdir()))) <= 1
    assert len(runs(mirrored(url, tmp_path))) == 2


def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs", "--records", "nothing://here"]) != Exit.OK
    assert "nothing://here: expected a store of runs" in capsys.readouterr().err
    assert main(["runs", "--records", f"file://{tmp_path}/none"]) != Exit.OK
    assert "expected a store of runs" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert main(["runs", "--records", "memory://runs"]) == Exit.INCAPABLE
    assert "pip install fsspec" in capsys.readouterr().err


def test_copies_are_whole_after_an_interruption_before_they_were_listed(url: str, tmp_path: Path) -> None:
    place = mirrored(url, tmp_path / "profiles")
    (place / "seen.json").unlink()
    assert runs(mirrored(url, tmp_path / "profiles")) == [run_of(0), run_of(1)]


def test_an_error_of_any_kind_names_the_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Denied(Exception):
        pass

    def ls(*_: object, **__: object) -> None:
        raise Denied("no credentials")

    message = "expected a store of runs that can be read, found: no credentials"
    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.core.url_to_fs(url)[0]), "ls", ls)
        with pytest.raises(FlashcoreError, match=message):
            mirrored(url, tmp_path / "profiles")
