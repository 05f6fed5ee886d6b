"""Which suite is meant where none is named, and where the roofs suite lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.suites import find, load
from tests.conftest import ROOT, TOY, flashcore


def suite(folder: Path) -> Path:
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("place", [".", "kernels", "kernels/mine"])
def test_the_one_suite_that_is_near_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    suite(tmp_path / place)
    monkeypatch.chdir(tmp_path)
    assert find.suite_folder(None) == place
    assert find.near(tmp_path) == tmp_path / place


def test_several_are_listed_and_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"found none\n  hint: .*flashcore init DIR"):
        find.near(tmp_path)
    two = [suite(tmp_path / "kernels" / name) for name in ("b", "a")]
    with pytest.raises(UsageError, match=rf"expected one suite here .*, found {two[1]}, {two[0]}\n  hint: name one"):
        find.near(tmp_path)
    suite(tmp_path)
    with pytest.raises(UsageError, match=rf"found {tmp_path}, {two[1]}, {two[0]}\n"):
        find.near(tmp_path)


def test_the_roofs_suite_is_none_to_choose_but_where_one_stands_in_it(tmp_path: Path) -> None:
    ours = [ROOT / "kernels" / name for name in ("attention", "attention_general")]
    with pytest.raises(UsageError, match=rf"found {ours[0]}, {ours[1]}\n"):
        find.near(ROOT)
    assert find.near(ROOT / "kernels" / "roofs") == ROOT / "kernels" / "roofs"
    # A checkout beside an installed flashcore: not the same file, but the same suite.
    shutil.copytree(ROOT / "kernels" / "roofs", tmp_path / "kernels" / "roofs")
    mine = suite(tmp_path / "kernels" / "mine")
    assert find.near(tmp_path) == mine


def test_a_suite_is_named_by_its_folder_or_its_manifest(tmp_path: Path) -> None:
    root = suite(tmp_path / "mine")
    assert find.suite_folder(str(root)) == find.suite_folder(f"{root}/suite.toml") == str(root)
    assert find.suite_folder(f"{root}/") == str(root)  # a run that is resumed is known by it
    with pytest.raises(UsageError, match=r"expected a suite's folder or its suite\.toml, found another file"):
        find.suite_folder(str(root / "scale.cu"))


def test_the_command_line_finds_it(tmp_path: Path) -> None:
    suite(tmp_path / "kernels" / "mine")
    for words in ((), ("--suite", "kernels/mine/suite.toml")):
        done = flashcore("list", *words, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.startswith("toy: Scale a vector")
    suite(tmp_path / "kernels" / "other")
    done = flashcore("gate", cwd=tmp_path)
    assert done.returncode == 2 and "found kernels/mine, kernels/other" in done.stderr


def test_a_suite_in_a_project_uses_the_folders_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, expected in (("kernels/mine", "../../build"), ("kernels", "../build"), ("mine", "build")):
        monkeypatch.chdir(suite(tmp_path / place))
        assert find.of_project("build") == expected
    monkeypatch.chdir(tmp_path / "kernels" / "mine")
    Path("build").mkdir()
    assert find.of_project("build") == "build", "where there is one already"
    monkeypatch.chdir(tmp_path)
    assert find.of_project("build") == "build"
    done = flashcore("report", cwd=tmp_path / "kernels" / "mine")
    assert done.returncode == 2 and done.stderr.startswith("flashcore: ../../profiles: expected a recorded run")


def test_every_folder_of_a_repository_uses_its_suite_and_its_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = suite(tmp_path / "kernels" / "mine")
    for folder in (tmp_path / "docs", mine / "include" / "deep"):
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        assert find.of_project("build") == "build", "outside of a repository"
    (tmp_path / ".git").mkdir()
    for folder in (tmp_path, tmp_path / "docs", tmp_path / "kernels", mine, mine / "include" / "deep"):
        monkeypatch.chdir(folder)
        assert Path(find.of_project("build")).resolve() == tmp_path / "build"
        assert Path(find.suite_folder(None)).resolve() == mine
    other = suite(tmp_path / "examples" / "other")
    monkeypatch.chdir(other)
    assert Path(find.suite_folder(None)).resolve() == other
    assert Path(find.of_project("build")).resolve() == tmp_path / "build", "as for --suite examples/other at the top"
    (other / "build").mkdir()
    assert find.of_project("build") == "build", "where there is one already"


def test_the_roofs_suite_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert find.roofs_suite() == Path("kernels/roofs")  # as the published run names it
    monkeypatch.chdir(tmp_path)
    assert find.roofs_suite() == ROOT / "kernels" / "roofs"
    assert load.load(find.roofs_suite()).name == "roofs"
