"""Processes that do as they are told, and waiting for what they do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashcore.runner.journal import Task
from tests.conftest import TESTS

CHILDREN = TESTS / "children"


def actor(how: str = "") -> Callable[[Path, Path], list[str]]:
    return lambda tasks, journal: [sys.executable, str(CHILDREN / "actor.py"), str(tasks), str(journal), how]


def does(name: str, what: str = "", **payload: Any) -> Task:
    return Task(name, {"do": what, **payload})


def gone(pid: int, patience: float = 60.0) -> bool:
    """True if the process has ended or ends soon; a zombie has ended."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def until(condition: Callable[[], bool], patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "what the test waits for did not come"
        time.sleep(0.02)
