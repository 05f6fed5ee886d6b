"""The command that draws a run: what it holds it against, and what it links."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from flashcore.cli import report
from flashcore.errors import UsageError
from flashcore.runs import store
from tests import factory

OLD = "20260101T000000Z-0000"


def drawn(tmp_path: Path, *words: str) -> str:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    folder = tmp_path / "reports" / "r"
    given = ["--profiles", str(tmp_path / "profiles"), "-o", str(folder), *words]
    assert report.run(parser.parse_args(given)) == 0
    return (folder / "compare.html").read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """The ids of two recorded runs, the newer one first."""
    own, older = factory.record(), dataclasses.replace(factory.record(times={"split": 30.0}), id=OLD)
    for record in (own, older):
        folder = tmp_path / "profiles" / record.id
        folder.mkdir(parents=True)
        store.write(record, folder)
    return own.id, older.id


def test_a_run_is_held_against_another(tmp_path: Path, runs: tuple[str, str]) -> None:
    assert f"Run {runs[0]} against run {OLD}" in drawn(tmp_path, runs[0], "--against", OLD)
    assert OLD not in drawn(tmp_path, runs[0])
    with pytest.raises(UsageError, match="20990101"):
        drawn(tmp_path, runs[0], "--against", "20990101T000000Z-0000")


def test_the_page_of_all_runs_is_linked_once_it_is_there(tmp_path: Path, runs: tuple[str, str]) -> None:
    assert "../runs.html" not in drawn(tmp_path, runs[0])
    (tmp_path / "reports" / "runs.html").write_text("")
    assert '<a href="../runs.html">Runs</a>' in drawn(tmp_path, runs[0])
