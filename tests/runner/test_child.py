"""A child: it imports while it has no tasks, waits for more, and ends with its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashcore.runner.child import SUPERVISOR, UNRECOVERABLE, tasks_of
from flashcore.runner.journal import Share, Task, TaskResult, read_journal
from tests.conftest import ROOT
from tests.support.processes import actor, until


@pytest.mark.parametrize("first", [True, False])
def test_nothing_more_is_imported_once_there_are_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setenv(SUPERVISOR, str(os.getpid()))
    path = tmp_path / "tasks.json"
    path.write_bytes(Share(more=True).encode())
    order: list[str] = []

    def imports(name: str, given: bool) -> None:
        order.append(name)
        if given:
            with path.open("ab") as file:
                file.write(_line("a"))

    steps = [lambda: imports("torch", first), lambda: imports("what few need", not first)]
    assert [task.name for task in tasks_of(path, steps)] == ["a"]
    assert order == ["torch"] if first else ["torch", "what few need"]


def _line(*names: str, more: bool = False) -> bytes:
    return Share(tuple(Task(name, {}) for name in names), more=more).encode()


@pytest.mark.parametrize("killed", [False, True])
def test_a_child_waits_for_more_and_loses_no_answer(tmp_path: Path, killed: bool) -> None:
    """It waits for a line that is half written, and ends when told so. After kill -9 every answer is there, also those
    that were not synced yet."""
    tasks, answers = tmp_path / "tasks-001.json", tmp_path / "journal-001.jsonl"
    tasks.write_bytes(_line("a/s", "b/s", more=True))
    environment = {**os.environ, "FLASHCORE_SUPERVISOR": str(os.getpid()), "PYTHONPATH": str(ROOT / "harness")}

    def give(content: bytes) -> None:
        with tasks.open("ab") as file:
            file.write(content)

    def answered() -> str:
        return " ".join(m.name for m in read_journal(answers) if isinstance(m, TaskResult))

    with subprocess.Popen(actor()(tasks, answers), env=environment) as child:
        until(lambda: answered() == "a/s b/s")
        more = _line("c/s", "d/s", more=True)
        give(more[:9])
        time.sleep(0.05)  # so that it sees this much
        give(more[9:])
        until(lambda: answered() == "a/s b/s c/s d/s")
        assert child.poll() is None, "it waits for more"
        if killed:
            child.kill()
        else:
            give(_line())
        assert child.wait(120) == (-signal.SIGKILL if killed else 0)
    assert answered() == "a/s b/s c/s d/s"


def test_what_starts_after_its_supervisor_ended_does_nothing() -> None:
    """Another supervisor may have its tasks by now."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    code = "from flashcore.runner import child; child.follow_supervisor(); print('at work')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), SUPERVISOR: str(ended.pid)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (UNRECOVERABLE, "")
