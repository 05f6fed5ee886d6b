"""A build's folder is its own, and goes with it; a killed build's goes with the next."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flashcore.build.workplace import made_in


def test_only_abandoned_folders_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "new" / "build"
    with made_in(root) as first:
        assert first.parent == root and first.is_dir()
        abandoned, young = root / ".building-old", root / ".building-young"
        for folder in (abandoned, young, root / "kept"):
            folder.mkdir()
        for folder in (abandoned, first, root / "kept"):
            os.utime(folder, (time.time() - 60, time.time() - 60))
        with made_in(root) as second:
            assert second != first and first.is_dir() and young.is_dir() and not abandoned.exists()
        assert not second.exists()
    assert {p.name for p in root.iterdir()} == {"kept", young.name}


def test_a_build_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), made_in(tmp_path):
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == []
