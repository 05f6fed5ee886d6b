"""Functions called in a forked process."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from flashcore.machine.isolated import Ended, isolated, started


def _open_files() -> list[str]:
    paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in paths if os.path.lexists(path)]


def test_a_file_of_the_caller_is_not_open_there(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    with path.open("w"):
        assert str(path) in _open_files()
        assert str(path) not in isolated(120, _open_files)


def test_several_run_at_a_time_each_with_its_limit() -> None:
    def answer(i: int) -> int:
        time.sleep(600.0 if i == 1 else 0.0)
        return i

    processes = [started(1.0 if i == 1 else 120.0, functools.partial(answer, i)) for i in range(3)]
    assert [next(p) for p in processes] == [None] * 3
    assert [next(p) for p in processes] == [0, Ended(None, ""), 2]
