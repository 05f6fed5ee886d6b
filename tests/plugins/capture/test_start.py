"""What ncu wraps: the command's environment, output and exit code, and its end with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flashcore.measure.workers.journal import answers, has_ended


def start(folder: Path, body: str) -> subprocess.Popen[bytes]:
    payload = {
        "argv": [sys.executable, "-c", f"import os, signal, subprocess, sys, time\n{body}"],
        "environment": {"GIVEN": "1"},
        "unset": ["TAKEN"],
        "output": str(folder / "output"),
    }
    (folder / "tasks").write_text(json.dumps({"tasks": [{"name": "a", "payload": payload}]}))
    command = [sys.executable, "-m", "flashcore.plugins.capture.start", "tasks", "journal-1.jsonl"]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "TAKEN": "1"})


def test_the_command_gets_its_variables_and_answers_with_its_signal(tmp_path: Path) -> None:
    body = "print(os.environ['GIVEN'], 'TAKEN' in os.environ, flush=True); os.kill(os.getpid(), 9)"
    assert start(tmp_path, body).wait() == 0
    assert (tmp_path / "output").read_text() == "1 False\n"
    assert answers(tmp_path)["a"].data == {"code": -9}


def test_what_the_command_started_ends_with_it_at_once_or_by_force(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    body = f"""
pids = [os.getpid()]
for code in ({stubborn!r}, "print(flush=True); import time; time.sleep(99)"):
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    pids.append(child.pid)
print(*pids, flush=True)
time.sleep(99)
"""
    starter = start(tmp_path, body)
    while not (text := (tmp_path / "output").read_text() if (tmp_path / "output").exists() else "").endswith("\n"):
        time.sleep(0.02)
    starter.send_signal(signal.SIGTERM)
    assert starter.wait() == 128 + signal.SIGTERM
    pids = [int(pid) for pid in text.split()]
    deadline = time.monotonic() + 20
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in pids if not has_ended(pid)] == [] and answers(tmp_path) == {}
