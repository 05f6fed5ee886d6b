"""The index of runs: complete, incremental, and read again whenever it is missing or damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import flashcore as fc
from flashcore.errors import UsageError
from flashcore.model.case import Case
from flashcore.records import packed as pack
from flashcore.records import store
from flashcore.records.index import NAME, Index
from tests.support.late import needs
from tests.support.nights import run_of, write

pytestmark = needs("numpy")


def times(profiles: Path, *more: Path) -> list[tuple[str, float]]:
    return [(p.run, p.value) for p in Index([profiles, *more]).points("time", "fast", "mission")]


def test_a_series_has_what_the_records_have(tmp_path: Path) -> None:
    write(tmp_path, 3, sigma=0)
    for night, (run, value) in enumerate(times(tmp_path)):
        record = store.read(tmp_path / run_of(night))
        subject = next(
            f.subject for f in record.facts.named("isolated_p50") if f.subject.case == Case("fast", "mission")
        )
        rank = record.suite.shapes["mission"].rank_by
        assert (run, value) == (record.id, record.facts.number(f"{rank}_p50", subject))
        every = Index([tmp_path]).values(run, "fast", "mission")
        assert every["time"] == value and every.keys() > {"isolated_p50", "registers"}
    (point, *_) = Index([tmp_path]).points("time", "fast", "mission")
    assert point.code == store.read(tmp_path / run_of(0)).keys[Case("fast", "mission")].code and point.driver == "580.1"


def test_new_runs_are_added_and_removed_ones_dropped(tmp_path: Path) -> None:
    write(tmp_path, 2)
    assert len(times(tmp_path)) == 2
    write(tmp_path, 3, first=2)
    shutil.rmtree(tmp_path / run_of(0))
    assert [run for run, _ in times(tmp_path)] == [run_of(1), run_of(2)]


@pytest.mark.parametrize("content", [None, b"", b"no database", b"SQLite format 3\0" + bytes(200)])
def test_a_missing_or_damaged_index_is_read_again(tmp_path: Path, content: bytes | None) -> None:
    write(tmp_path, 2)
    whole = times(tmp_path)
    (tmp_path / NAME).unlink() if content is None else (tmp_path / NAME).write_bytes(content)
    assert times(tmp_path) == whole and len(whole) == 2


def test_an_index_that_is_damaged_inside_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, 2)
    whole = times(tmp_path)
    content = bytearray((tmp_path / NAME).read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    (tmp_path / NAME).write_bytes(content)
    assert times(tmp_path) == whole and len(whole) == 2


def test_a_packed_run_is_the_same_as_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "here", 2, sigma=0)
    whole = times(tmp_path / "here")
    place = tmp_path / "packed"
    place.mkdir()
    for run, _ in whole:
        (place / f"{run}.run.zip").write_bytes(pack.packed(tmp_path / "here" / run))
    assert times(place) == whole
    assert times(tmp_path / "here", place) == whole, "a run in two places counts once"


def test_a_store_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / NAME).mkdir()  # no file can be there
    assert len(times(tmp_path)) == 2


def test_the_api_gives_a_frame_and_names_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    write(tmp_path, 3)
    assert fc.history("fast/mission", profiles=tmp_path)["run"].tolist() == [run_of(n) for n in range(3)]
    assert fc.history("fast/mission", "registers", tmp_path)["value"].nunique() == 1
    with pytest.raises(UsageError, match=r"found none\n  hint: they measured achieved_occupancy, "):
        fc.history("fast/mission", "nothing", tmp_path)
    with pytest.raises(UsageError, match="flashcore runs lists the runs"):
        fc.history("none/mission", profiles=tmp_path)


def test_a_point_has_the_timing_mode_of_its_rank(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (point,) = Index([tmp_path]).points("time", "fast", "mission")
    assert point.mode == store.read(tmp_path / run_of(0)).suite.shapes["mission"].rank_by
