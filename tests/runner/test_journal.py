"""The journal: only whole lines count, and what was begun is answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashcore.model.cause import as_json
from flashcore.model.causes import Hang, HungBefore
from flashcore.runner import journal
from flashcore.runner.journal import SUPERVISOR, UNRECOVERABLE, parse, read_journal, tasks_of
from tests.conftest import ROOT
from tests.support.processes import actor, until


def test_only_whole_lines_are_read() -> None:
    lines = b'{"event": "begin", "name": "a"}\n{"event": "res'
    assert [x["event"] for x in parse(lines)] == ["begin"]
    assert list(parse(b'garbage\n\n[1]\n"text"\n')) == []


def test_lines_of_another_form_are_left_out() -> None:  # item 18: without a key they were a traceback
    lines = [
        {"event": "begin"}, {"event": "result"}, {"event": "fail", "name": "a"}, {"event": "step", "name": "a"},
        {"event": "lacks", "what": "a"},
        {"event": "start"}, {"event": "start", "pid": "x"}, {"event": "result", "name": ["a"]}, {"event": ["begin"]},
        {"event": "result", "name": "a", "seconds": "long"}, {"event": "result", "name": "a", "seconds": 1e999},
        {"event": "result", "name": "a", "data": [1]}, {"event": "fail", "name": "a", "cause": None}, {"name": "a"},
    ]  # fmt: skip
    text = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n" + b"[" * 50_000
    text += b'\n{"event": "result", "name": "a", "seconds": ' + b"9" * 5_000 + b"}\n"
    assert list(parse(text)) == []


@pytest.mark.parametrize("first", [True, False])
def test_nothing_more_is_imported_once_there_are_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setenv(SUPERVISOR, str(os.getpid()))
    path = tmp_path / "tasks.json"
    path.write_text('{"more": true, "tasks": []}\n')
    order: list[str] = []

    def imports(name: str, given: bool) -> None:
        order.append(name)
        if given:
            with path.open("a") as file:
                file.write('{"tasks": [{"name": "a", "payload": {}}]}\n{"tasks": []}\n')

    steps = [lambda: imports("torch", first), lambda: imports("what few need", not first)]
    assert [task.name for task in tasks_of(path, steps)] == ["a"]
    assert order == ["torch"] if first else ["torch", "what few need"]


def _line(*names: str, **head: object) -> bytes:
    return json.dumps({**head, "tasks": [{"name": n, "payload": {}} for n in names]}).encode() + b"\n"


@pytest.mark.parametrize("killed", [False, True])
def test_a_child_waits_for_more_and_loses_no_answer(tmp_path: Path, killed: bool) -> None:
    """It waits for a line that is half written, and ends when told so. After kill -9 every answer is there, also those
    that were not synced yet."""
    tasks, answers = tmp_path / "tasks-001.json", tmp_path / "journal-001.jsonl"
    tasks.write_bytes(_line("a/s", "b/s", gpu="GPU-a", more=True))
    environment = {**os.environ, "FLASHCORE_SUPERVISOR": str(os.getpid()), "PYTHONPATH": str(ROOT / "harness")}

    def give(content: bytes) -> None:
        with tasks.open("ab") as file:
            file.write(content)

    def answered() -> str:
        return " ".join(line["name"] for line in read_journal(answers) if line["event"] == "result")

    with subprocess.Popen(actor()(tasks, answers), env=environment) as child:
        until(lambda: answered() == "a/s b/s")
        more = _line("c/s", "d/s")
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
    code = "from flashcore.runner import journal; journal.follow_supervisor(); print('at work')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), SUPERVISOR: str(ended.pid)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (UNRECOVERABLE, "")


def test_the_first_answer_to_a_task_counts_and_the_supervisors_last(tmp_path: Path) -> None:
    def line(event: str, name: str, **more: object) -> str:
        return json.dumps({"event": event, "name": name, **more}) + "\n"

    cause = as_json(Hang(2))
    (tmp_path / "journal-001.jsonl").write_text(line("begin", "a") + line("result", "a", data={"n": 1}))
    (tmp_path / "journal-002.jsonl").write_text(line("result", "a", data={"n": 2}) + line("fail", "b", cause=cause))
    last = line("result", "b", data=None) + line("fail", "v/s", cause=cause, step="x")
    (tmp_path / "supervisor.jsonl").write_text(last)
    result = journal.answers(tmp_path)
    assert {n: (r.status, r.data, r.cause) for n, r in result.items()} == {
        "a": ("ok", {"n": 1}, None), "b": ("failed", None, Hang(2)), "v/s": ("failed", None, Hang(2))
    }  # fmt: skip
    assert result["v/s"].step.what == "x" and journal.hung(result.values()) == {"v": HungBefore("s", Hang(2))}
    assert journal.answers(tmp_path / "nowhere") == {}
