"""``flashcore watch`` without a GPU: what a save answers, on a terminal and for programs."""

from __future__ import annotations

import json
import os
import pty
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from flashcore.errors import Exit
from tests.conftest import ROOT, TOY

pytestmark = pytest.mark.filterwarnings("error")
PATIENCE = 120.0


class Watched:
    """A watch of one variant of the toy suite, in a folder of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.suite = folder / "suite"
        shutil.copytree(TOY, self.suite)
        self.source = self.suite / "scale.cu"
        self.command = [
            sys.executable, "-P", "-m", "flashcore", "watch", "--suite", "suite", "--variant", "plain", *words
        ]  # fmt: skip
        self.folder = folder
        path = os.pathsep.join(filter(None, (str(ROOT / "harness"), os.environ.get("PYTHONPATH"))))
        self.env = {**os.environ, "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "200"}

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self.command, "--format", "jsonl"], cwd=self.folder, env=self.env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        return process

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._events.put(json.loads(line))
        self._events.put({"event": "end of output"})

    def until(self, event: str) -> list[dict[str, Any]]:
        """The events up to and with the next one of this kind."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["event"] != event:
            events.append(self._events.get(timeout=PATIENCE))
            assert events[-1]["event"] != "end of output", f"the watch ended before {event!r}: {events}"
        return events

    def save(self, edit: Callable[[str], str]) -> None:
        self.source.write_text(edit(self.source.read_text()))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    process = made.start()
    try:
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == Exit.OK, errors


def answers(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last answer to each question."""
    return {e["question"]: e for e in events if e["event"] == "answer"}


def test_a_save_is_answered_by_its_budgets_and_advice(watched: Watched) -> None:
    first = watched.until("idle")
    assert first[0] == {"version": 1, "event": "save", "save": 1, "files": []}
    assert answers(first)["budgets"]["status"] == "ok" and "limits" in answers(first)
    watched.save(lambda text: text.replace("FLASHCORE_VARIANT", "__constant__ int one = 1;\nFLASHCORE_VARIANT"))
    second = watched.until("idle")
    assert second[0]["files"] == ["scale.cu"] and answers(second)["budgets"]["save"] == 2
    assert 0 < answers(second)["budgets"]["seconds"] < PATIENCE


def test_keys_come_from_a_pipe_too(tmp_path: Path) -> None:
    made = Watched(tmp_path)
    process = made.start()
    made.until("idle")
    assert process.stdin
    process.stdin.write("p\n")
    process.stdin.flush()
    assert answers(made.until("idle"))["budgets"]["save"] == 2
    _, errors = process.communicate("q", timeout=PATIENCE)
    assert process.returncode == Exit.OK, errors


def test_the_same_machine_code_is_not_answered_again(watched: Watched) -> None:
    watched.until("idle")
    watched.save(lambda text: text + "// a comment\n")
    events = watched.until("idle")
    assert not answers(events)
    assert any("the same machine code" in e.get("what", "") for e in events)


def test_what_does_not_compile_fails_and_the_next_save_is_answered(watched: Watched) -> None:
    watched.until("idle")
    good = watched.source.read_text()
    watched.save(lambda text: text + "no declaration\n")
    failed = answers(watched.until("idle"))
    assert failed["budgets"]["status"] == "failed" and "scale.cu" in failed["budgets"]["lines"][0]
    watched.save(lambda _: good.replace("FLASHCORE_VARIANT", "__constant__ int two = 2;\nFLASHCORE_VARIANT"))
    assert answers(watched.until("idle"))["budgets"]["status"] == "ok"


def test_a_wrong_manifest_is_an_error_until_it_is_right_again(watched: Watched) -> None:
    watched.until("idle")
    manifest = watched.suite / "suite.toml"
    good = manifest.read_text()
    manifest.write_text(good + "\nno such key = \n")
    assert "suite.toml" in watched.until("error")[-1]["message"]
    manifest.write_text(good)
    assert watched.until("idle")[-1]["save"] > 2


def test_a_save_while_working_is_answered_instead(watched: Watched) -> None:
    """All that was saved since the last whole answer is answered, and nothing twice."""
    watched.until("idle")
    for number in range(3):
        watched.save(lambda text, n=number: text + f"\n__constant__ int edit_{n} = {n};\n")  # type: ignore[misc]
        time.sleep(0.3)
    events = watched.until("idle")
    while events[-1]["save"] < 4:
        events += watched.until("idle")
    assert answers(events)["budgets"]["save"] == 4


def test_on_a_terminal_it_draws_answers_and_obeys_keys(tmp_path: Path) -> None:
    made = Watched(tmp_path)
    main, child = pty.openpty()
    process = subprocess.Popen(made.command, cwd=tmp_path, env=made.env, stdin=child, stdout=child, stderr=child)
    os.close(child)
    drawn = b""
    try:
        while b"budgets" not in drawn or b"waiting for a save" not in drawn:
            drawn += os.read(main, 65536)
        assert b"[q] quit" in drawn and b"s ago" in drawn
        os.write(main, b"x")  # no key of it
        os.write(main, b"q")
        while True:
            try:
                if not os.read(main, 65536):
                    break
            except OSError:  # the child has closed its end
                break
        assert process.wait(PATIENCE) == Exit.OK
    finally:
        process.kill()
        os.close(main)


@pytest.mark.gpu
def test_on_a_gpu_all_four_questions_are_answered(watched: Watched) -> None:
    """Also after a kernel that is wrong, and one that hangs, whose process alone is replaced."""
    watched.until("idle")
    good = watched.source.read_text()
    bodies = {"right": "", "wrong": "return;", "hangs": "while (clock64() != 0) {}", "right again": ""}
    for number, (what, body) in enumerate(bodies.items()):
        text = good.replace("{\n  const long long first", f"{{ {body}\n  const long long first")
        text = text.replace("FLASHCORE_VARIANT", f"__constant__ int edit = {number};\nFLASHCORE_VARIANT")
        watched.source.write_text(text)
        given = answers(watched.until("idle"))
        assert given["right"]["status"] == ("failed" if body else "ok"), (what, given["right"])
        if not body:
            assert given["faster"]["data"]["us"] > 0 and given["limits"]["status"] == "ok"
            assert not given["budgets"]["data"]["failed"]
