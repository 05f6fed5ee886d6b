"""The command that draws a run: what it holds it against, and what it links."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from flashcore.cli import report
from flashcore.records import store
from tests import factory

OLD = "20260101T000000Z-0000"


def drawn(tmp_path: Path, *words: str) -> str:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    folder = tmp_path / "reports" / "r"
    given = ["--profiles", str(tmp_path / "profiles"), "-o", str(folder), *words]
    assert report.run(parser.parse_args(given)) == 0
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """The ids of two recorded runs, the newer one first."""
    first, older = factory.record(), dataclasses.replace(factory.record(times={"split": 30.0}), id=OLD)
    for record in (first, older):
        folder = tmp_path / "profiles" / record.id
        folder.mkdir(parents=True)
        store.write(record, folder)
    return first.id, older.id


def test_a_part_of_a_run_is_drawn_with_what_it_is_compared_with(tmp_path: Path, runs: tuple[str, str]) -> None:
    drawn(tmp_path, runs[0], "--variant", "fast", "--shape", "mission")
    pages = {p.stem for p in (tmp_path / "reports" / "r" / "variant").glob("*.html")}
    assert pages == {"fast", "slow", "cudnn"}, "the variant, its parent and the library"
    text = (tmp_path / "reports" / "r" / "variant" / "fast.html").read_text(encoding="utf-8")
    assert "mission" in text and ">long<" not in text
