"""Source texts that reports hold are kept under their names."""

from __future__ import annotations

from pathlib import Path

from flashcore.plugins.imports.keep import keep_sources
from flashcore.readers.ncu.results import Report


def test_sources_are_kept_under_their_names_numbered_where_two_share_one(tmp_path: Path) -> None:
    first = Report("a", (), sources={"/x/k.cu": "1", "C:\\y\\k.cu": "2", "/z/.hidden": "3", "/": "4"})
    keep_sources([first, Report("b", (), sources={"/w/k.cu": "5\udc80"})], tmp_path / "sources")
    kept = {p.name: p.read_text() for p in (tmp_path / "sources").iterdir()}
    assert kept == {"k.cu": "1", "1-k.cu": "2", "hidden": "3", "source": "4", "4-k.cu": "5?"}


def test_without_sources_there_is_no_folder(tmp_path: Path) -> None:
    keep_sources([Report("a", ())], tmp_path / "sources")
    assert not (tmp_path / "sources").exists()
