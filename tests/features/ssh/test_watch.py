"""``flashcore watch --host``: what is saved here is answered there."""

from __future__ import annotations

import os
import signal
import subprocess
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flashcore.errors import Exit
from flashcore.machine import toolchain
from tests.features.ssh.conftest import Box
from tests.support.watching import PATIENCE, Watched, answers

pytestmark = pytest.mark.slow  # each session has a watch and a build of its own


class Session:
    """A watch here, of the box."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box, self.watched = box, Watched(folder, "--host", box.executor.removeprefix("host="), "--serve")
        self.watched.start()
        self.first = self.watched.until("idle")


def edited(number: int) -> Callable[[str], str]:
    """An edit that changes the machine code."""
    return lambda text: text + f"\n__constant__ int edit_{number} = {number};\n"


@pytest.fixture
def session(box: Box, compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    work = tmp_path / "a; touch made"
    work.mkdir()
    made = Session(box, work)
    yield made
    made.watched.interrupt()
    made.watched.ends()


def test_a_save_here_is_answered_there(session: Session) -> None:
    watched = session.watched
    assert [e["event"] for e in session.first[:2]] == ["serving", "working"] and "127.0.0.1" in session.first[0][
        "message"
    ]
    assert answers(session.first)["budgets"]["status"] == "ok" and "limits" in answers(session.first)
    watched.save(edited(1))
    second = watched.until("idle")
    assert second[0]["files"] == ["scale.cu"] and answers(second)["budgets"]["save"] == 2
    assert 0 < answers(second)["budgets"]["seconds"] < PATIENCE
    assert [*session.box.folder.rglob("variant.cubin")] and not [*watched.folder.rglob("variant.cubin")]

    good = watched.source.read_text()
    watched.save(lambda text: text + "no declaration\n")
    failed = answers(watched.until("idle"))["budgets"]
    assert failed["status"] == "failed" and "scale.cu" in "".join(failed["lines"])
    watched.save(lambda _: good)
    assert answers(watched.until("idle"))["budgets"]["status"] == "ok"

    extra = watched.suite / "extra.py"
    extra.touch()
    watched.until("idle")
    sources = session.box.folder / "sources" / str(watched.suite)[1:]
    assert (sources / "extra.py").is_file()
    extra.unlink()
    watched.until("idle")
    assert not (sources / "extra.py").exists()


def test_a_broken_connection_is_made_again_and_sends_what_changed(session: Session) -> None:
    watched = session.watched
    watched.save(edited(1))
    before = watched.until("idle")[-1]["save"]
    for number in (2, 3):
        link = session.box.link.read_text()
        os.kill(int(link), signal.SIGKILL)
        watched.save(edited(number))
        events = watched.until("idle")
        assert any("connecting again" in e.get("what", "") for e in events)
        assert answers(events)["budgets"]["save"] > before
        before = events[-1]["save"]
        there = session.box.folder / "sources" / str(watched.source)[1:]
        assert there.read_text() == watched.source.read_text()


def test_keys_and_a_recorded_run(session: Session) -> None:
    watched = session.watched
    watched.press("p")
    assert answers(watched.until("idle"))["budgets"]["save"] == 2
    watched.press("r")
    recorded = watched.until("recorded")[-1]
    assert recorded["exit_code"] in (Exit.OK, Exit.UNMEASURED), recorded
    (run,) = (watched.folder / "profiles").iterdir()
    assert any(run.name in line for line in recorded["lines"])
    assert answers(watched.until("idle"))["budgets"]["save"] == 3


def test_errors_end_the_command(box: Box, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    for address, shape, message in (
        ("nowhere.invalid", "main", "nowhere.invalid: expected a connection with Python there, found: "),
        (f"box:{bare}/bin/python", "main", "box: expected what flashcore needs, found no package "),
        (box.executor.removeprefix("host="), "none", "box: --shape none: expected "),
    ):
        made = Watched(tmp_path / shape / address.partition(":")[0], "--host", address, "--shape", shape)
        done = subprocess.run(made.command, cwd=made.folder, env=made.env, capture_output=True, text=True, check=False)
        assert done.returncode in (Exit.USAGE, Exit.INCAPABLE) and message in done.stderr, done.stderr
