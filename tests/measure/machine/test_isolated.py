"""Functions called in a forked process."""

from __future__ import annotations

import os
from pathlib import Path

from flashcore.measure.machine.isolated import isolated


def _open_files() -> list[str]:
    paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in paths if os.path.lexists(path)]


def test_a_file_of_the_caller_is_not_open_there(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    with path.open("w"):
        assert str(path) in _open_files()
        assert str(path) not in isolated(10, _open_files)
