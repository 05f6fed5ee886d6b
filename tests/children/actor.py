"""A child that does what its tasks' payloads say: ``actor.py TASKFILE JOURNAL [HOW]``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError
from flashcore.runner.child import child
from flashcore.runner.journal import Journal, Task

HOW = sys.argv[3] if len(sys.argv) > 3 else ""


def prepare(first: Task) -> None:
    if f"without {os.environ.get('CUDA_VISIBLE_DEVICES')}" == HOW:
        raise CapabilityError("no CUDA GPU that this process can use", "plug one in")
    if HOW == "incapable":
        raise CapabilityError("no CUDA GPU that this process can use", "plug one in")


def perform(task: Task, journal: Journal) -> dict[str, Any] | None:
    what = task.payload.get("do", "")
    print("performing", task.name, flush=True)
    if "note" in task.payload:  # leaves a trace of each time that it runs
        with Path(task.payload["note"]).open("a") as file:
            file.write(f"{task.name} {os.getpid()}\n")
    if what == "raise":
        raise ValueError("three wide\nand two high")
    if what == "segv":
        ctypes.string_at(0)
    if what == "abort":
        print("terminate called: what a C++ library says", file=sys.stderr, flush=True)
        os.abort()
    if what == "exit":
        print("giving up", file=sys.stderr, flush=True)
        os._exit(3)
    if what == "quiet exit":
        os._exit(0)
    if what == "loop":
        while True:
            time.sleep(0.1)
    if what == "stubborn loop":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    if what == "torn":
        os.write(journal._file, b'{"event": "answer", "name": "' + task.name.encode() + b'", "da')
        os._exit(1)
    if what == "poison":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if what == "nan":
        return {"time": float("nan")}
    if what == "steps":
        for step in ("first", "second", "third"):
            journal.step(task.name, step)
            time.sleep(2.0)
        os._exit(1)
    if what == "grandchild":
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return {"pid": sleeper.pid}
    if what == "other group":
        # As a profiler may do with its target.
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
        return {"pid": sleeper.pid}
    if what == "sleep":
        time.sleep(task.payload["seconds"])
    if what == "await":
        while not Path(task.payload["file"]).exists():
            time.sleep(0.02)
    if what == "journal full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), journal._file)
    return {"pid": os.getpid(), "echo": task.payload.get("echo"), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "root": task.payload.get("root"), "temporary": os.environ.get("TMPDIR")}  # fmt: skip


if HOW == "mute":
    time.sleep(600)
if HOW == "broken":
    print("ImportError: no module named anything", file=sys.stderr)
    sys.exit(1)
if HOW == "no permission":
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access performance counters")
    sys.exit(1)
print("process", os.getpid(), flush=True)
sys.exit(child(sys.argv[1:3], perform, prepare=prepare, imports=[lambda: print("imported", flush=True)]))
