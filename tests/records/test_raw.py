"""What is kept of a run's raw output: the logs in one archive, the same bytes each time, the rest compressed."""

from __future__ import annotations

import gzip
import zipfile
from dataclasses import replace
from pathlib import Path

from flashcore.records import raw
from tests import factory


def test_logs_are_one_archive_and_what_lies_deeper_is_compressed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ptxas info")
    artifacts = [replace(factory.artifact(name, "sm_80"), log=str(log)) for name in "ba"]
    kept = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        (folder / "check").mkdir(parents=True)
        for name in ("run.json", "check/journal.jsonl", "check/report.ncu-rep", "check/x.gz"):
            (folder / name).write_text(name)
        raw.keep(folder, [*artifacts, factory.artifact("c", "sm_80")])
        names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert names == {raw.LOGS, "run.json", "check/journal.jsonl.gz", "check/report.ncu-rep", "check/x.gz"}
        packed = (folder / "check" / "journal.jsonl.gz").read_bytes()
        assert gzip.decompress(packed) == b"check/journal.jsonl"
        kept.append(((folder / raw.LOGS).read_bytes(), packed))
    assert kept[0] == kept[1]
    with zipfile.ZipFile(tmp_path / "one" / raw.LOGS) as archive:
        assert archive.namelist() == ["a-sm_80.log", "b-sm_80.log"] and archive.read("a-sm_80.log") == b"ptxas info"
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_DEFLATED}


def test_without_logs_there_is_no_archive(tmp_path: Path) -> None:
    raw.keep(tmp_path, [factory.artifact("c", "sm_80")])
    assert [*tmp_path.iterdir()] == []
