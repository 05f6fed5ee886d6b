"""Which recorded run is meant."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.records import lookup, store
from tests import factory


def test_the_newest_is_found_by_its_id(tmp_path: Path) -> None:
    names = ["20260102T000000Z-0001", "20260103T000000Z-0001", "20251231T235959Z-ffff"]
    for name in names:  # the oldest id is written last
        store.write(factory.bare_record(id=name), folder := store.begin(tmp_path, name))
        store.complete(folder)
    (tmp_path / "20270101T000000Z-0000").mkdir()  # nothing in it
    store.begin(tmp_path, "20270102T000000Z-0000")  # did not end
    (tmp_path / "notes").mkdir()
    assert [p.name for p in lookup.runs(tmp_path)] == sorted(names, reverse=True)
    assert lookup.find(tmp_path, None).name == "20260103T000000Z-0001"
    assert lookup.find(tmp_path, "20251231").name == names[2]
    assert lookup.find(tmp_path, str(tmp_path / names[0])).name == names[0]
    assert [p.name for p in lookup.unfinished(tmp_path)] == ["20270102T000000Z-0000.partial"]
    with pytest.raises(UsageError, match="run 2026: expected one run's id, folder or packed file, found several"):
        lookup.find(tmp_path, "2026")
    with pytest.raises(UsageError, match=r"run 1999: .* found none .newest: 20260103T000000Z-0001"):
        lookup.find(tmp_path, "1999")


def test_the_newest_is_of_roofs_only_where_there_is_no_other(tmp_path: Path) -> None:
    record = factory.bare_record(id="20260102T000000Z-0001")
    roofs = dataclasses.replace(record, suite=dataclasses.replace(record.suite, name=lookup.ROOFS_SUITE))
    for one in (record, dataclasses.replace(roofs, id="20260103T000000Z-0001")):
        store.write(one, folder := store.begin(tmp_path, one.id))
        store.complete(folder)
    assert lookup.find(tmp_path, None).name == record.id
    shutil.rmtree(tmp_path / record.id)
    assert lookup.find(tmp_path, None).name == "20260103T000000Z-0001"


def test_the_newest_is_of_the_sanitizer_only_where_there_is_no_other(tmp_path: Path) -> None:
    record = factory.bare_record(id="20260102T000000Z-0001")
    sanitized = dataclasses.replace(record, id="20260103T000000Z-0001")
    for one in (record, sanitized):
        store.write(one, folder := store.begin(tmp_path, one.id))
        (folder / ("sanitize" if one is sanitized else "check")).mkdir()
        store.complete(folder)
    assert lookup.find(tmp_path, None).name == record.id
    shutil.rmtree(tmp_path / record.id)
    assert lookup.find(tmp_path, None).name == sanitized.id


def test_a_file_that_packs_no_run_is_none(tmp_path: Path) -> None:
    (notes := tmp_path / "notes.txt").write_text("")
    for name in (str(notes), str(tmp_path / "gone.run.zip"), str(tmp_path)):
        with pytest.raises(UsageError, match="found none"):
            lookup.find(tmp_path, name)


def test_a_damaged_run_is_the_newest_all_the_same(tmp_path: Path) -> None:
    for name in ("20260102T000000Z-0001", "20260103T000000Z-0001"):
        store.write(factory.bare_record(id=name), folder := store.begin(tmp_path, name))
        store.complete(folder)
    (tmp_path / name / store.HEADER).write_text("{")
    assert lookup.find(tmp_path, None).name == name


def test_no_runs_yet(tmp_path: Path) -> None:
    assert lookup.runs(tmp_path / "nowhere") == lookup.unfinished(tmp_path / "nowhere") == []
    with pytest.raises(UsageError, match="found none\n  hint: record one with flashcore profile"):
        lookup.find(tmp_path / "nowhere", None)
