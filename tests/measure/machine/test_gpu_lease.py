"""A GPU's lease: one holder at a time, whoever waits is told, and nothing is left of one that ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from flashcore.measure.machine import gpu_lease, python_process


def test_a_second_holder_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    order: list[str] = []
    waiting = threading.Event()

    def told(text: str) -> None:
        order.append(text)
        waiting.set()

    def second() -> None:
        with gpu_lease.lease("GPU-1", told):
            order.append("second")

    with gpu_lease.lease("GPU-1"), gpu_lease.lease("GPU-2"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(120)
        order.append("first")
    thread.join(120)
    assert order == ["GPU-1 is leased by another process: waiting for it", "first", "second"]
    with gpu_lease.lease("GPU-1"):
        pass


def test_several_are_held_together_and_seen_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with gpu_lease.leases(["GPU-2", "GPU-1"]):
        assert [gpu_lease.is_free(f"GPU-{n}") for n in (1, 2, 3)] == [False, False, True]
    assert gpu_lease.is_free("GPU-1") and gpu_lease.is_free("GPU-2")


def test_two_that_want_the_same_two_do_not_wait_in_a_circle(tmp_path: Path) -> None:
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from flashcore.measure.machine import gpu_lease\n"
        "for _ in range(50):\n"
        "    with gpu_lease.leases(sys.argv[2:]): time.sleep(0.001)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [
        subprocess.Popen([*command, *order], env=python_process.environment())
        for order in (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1"))
    ]
    assert [process.wait(200) for process in both] == [0, 0]
