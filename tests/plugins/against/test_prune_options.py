"""The folders of builds that ``flashcore prune`` removes for this plugin."""

from __future__ import annotations

from pathlib import Path

from flashcore.plugins.against import prune_options


def test_builds_of_revisions_and_of_comparisons_are_removed(tmp_path: Path) -> None:
    (tmp_path / "revisions/toy/wide-sm_80-0123456789abcdef").mkdir(parents=True)
    assert prune_options.folders(tmp_path) == [tmp_path / "revisions/toy", tmp_path / "against"]
