"""The kills: what a scenario finds when something is torn, lost or left."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import kills
from flashcore.runner.journal import TaskResult, encode


class Careless(kills.Scenario):
    """Writes a file in two steps."""

    patience = 0.3

    def command(self) -> list[str]:
        # It begins at once and takes its time, so that a kill meets it between the two even on a busy machine.
        return ["sh", "-c", "printf a > x; sleep 1; printf b >> x"]

    def look(self) -> Iterator[str]:
        file = self.folder / "x"
        if file.exists() and file.read_text() != "ab":
            yield "torn"


def test_a_torn_file_is_found(tmp_path: Path) -> None:
    rows = list(kills.killed(Careless(tmp_path / "careless"), 2, random.Random(1), 60.0))
    assert len(rows) == 2 and ["torn"] in [r["wrong"] for r in rows]


def test_what_outlives_a_kill_is_found(tmp_path: Path) -> None:
    scenario = Careless(tmp_path / "careless")
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=scenario.environment())
    try:
        assert scenario.survivors() == [sleeper.pid]
    finally:
        sleeper.kill()
        sleeper.wait()
    assert scenario.survivors() == []


def test_a_lost_answer_is_found(tmp_path: Path) -> None:
    scenario = kills.Worker(tmp_path / "worker")
    scenario.begin()
    journal = tmp_path / "worker" / "round0" / "journal-001.jsonl"
    journal.write_bytes(encode(TaskResult("v0/s", "ok", seconds=0.1)))
    (journal.parent / "performed").write_text("v0/s 1\n")
    assert list(scenario.look()) == []
    (journal.parent / "performed").write_text("v0/s 1\nv0/s 2\n")
    assert list(scenario.look()) == ["v0/s was answered, and performed again"]
    journal.write_text("")
    assert any("are lost" in words for words in scenario.look())
