"""The page *History*."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.features.runs.page import History, page
from flashcore.gate.judge import judge
from flashcore.model.record import Record
from flashcore.records import lookup, store
from flashcore.report.view import Book
from tests import factory
from tests.support.late import needs
from tests.support.nights import run_of, write

pytestmark = needs("numpy")


def other_gpu(record: Record, night: int) -> Record:
    return replace(record, environment=replace(record.environment, gpu="NVIDIA L4")) if night == 0 else record


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    write(tmp_path / "runs", 3, lambda case, night: 2.0 if night == 1 else 1.0, edit=other_gpu, sigma=0)
    return tmp_path / "runs"


def book(profiles: Path, night: int, *places: Path) -> Book:
    record = store.read(lookup.find(profiles, run_of(night)))
    return Book(record, judge(record), places=places)


def history(profiles: Path, night: int) -> History:
    made = page(book(profiles, night, profiles))
    assert made is not None and (made.name, made.title) == ("history", "History")
    return made.view


def test_each_run_has_its_fastest_variant_on_every_shape_newest_first(profiles: Path) -> None:
    tables = history(profiles, 2).tables
    assert [row and row.name for row, _ in tables] == ["mission", "long"]
    (_, mission), (_, long) = tables
    assert [cells[0].text for cells in mission] == [run_of(2), run_of(1), run_of(0)] and mission[0][0].detail
    assert [cells[3].text for cells in mission] == ["split"] * 3 and mission[0][3].href == "variant/split?shape=mission"
    assert [cells[5].text for cells in mission] == ["1.00", "2.00", "unmeasured"], "another GPU is not compared"
    assert long[1][5].text == "2.00"


def test_runs_without_times_are_listed_once(tmp_path: Path) -> None:
    write(tmp_path, 2, edit=lambda record, _: replace(factory.bare_record(), id=record.id))
    ((row, runs),) = history(tmp_path, 1).tables
    assert row is None and [cells[0].text for cells in runs] == [run_of(1), run_of(0)]


def test_a_run_alone_has_no_history(profiles: Path, tmp_path: Path) -> None:
    assert page(book(profiles, 2)) is None, "no place of other runs is known"
    write(tmp_path / "alone", 1)
    assert page(book(tmp_path / "alone", 0, tmp_path / "alone")) is None
