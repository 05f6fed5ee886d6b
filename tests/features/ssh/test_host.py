"""Runs on a host over ssh."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
import venv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.machine import python_process
from flashcore.model.progress import silent
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline.run import record_run
from flashcore.records import store
from flashcore.runner.child import has_ended
from tests.features.ssh.conftest import Box, until

#: Goes before a problem file: holds up the process that loads it.
HELD = """
import pathlib, time
place = pathlib.Path({place!r})
(place / "held").touch()
while not (place / "go").exists():
    time.sleep(0.02)
"""


@dataclass
class Held:
    """A run that stops while it loads its problem file."""

    place: Path

    def await_start(self) -> None:
        until((self.place / "held").exists)

    def go_on(self) -> None:
        (self.place / "go").touch()


@pytest.fixture
def held_run(settings: Settings, tmp_path: Path) -> Iterator[Held]:
    problem = Path("suite/problem.py")
    start, rest = problem.read_text().split("from __future__ import annotations\n")
    code = HELD.format(place=str(tmp_path))
    problem.write_text(f"{start}from __future__ import annotations\n{code}{rest}")
    made = Held(tmp_path)
    yield made
    made.go_on()


def values(record: Record) -> dict[tuple[object, str], object]:
    return {(fact.subject, fact.name): fact.value for fact in record.facts}


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.cubin")}


@pytest.mark.slow
def test_a_run_there_equals_one_here_and_the_next_compiles_only_what_changed(
    box: Box, settings: Settings, compiler: object
) -> None:
    messages: list[str] = []
    there = record_run(settings, messages.append)
    assert there.folder == Path("profiles", there.record.id)
    assert values(store.read(there.folder)) == values(there.record)
    here = record_run(replace(settings, executor="", profiles="here"), silent)
    assert values(there.record) == values(here.record) and values(here.record)
    assert there.record.suite == here.record.suite
    assert {p.stat().st_mode & 0o77 for p in (box.cache, box.folder)} == {0} and not Path("made").exists()

    compiled = files(box.folder / "build")
    again = record_run(settings, messages.append)
    assert files(box.folder / "build") == compiled != {}
    assert values(again.record) == values(there.record)

    Path("suite/new.cuh").touch()
    with Path("suite/scale.cu").open("a") as source:
        source.write("// the end\n")
    record_run(settings, messages.append)
    assert len(files(box.folder / "build")) == 2 * len(compiled)
    Path("suite/new.cuh").unlink()
    record_run(settings, messages.append)
    sources = box.folder / "sources" / Path("suite").resolve().relative_to("/")
    assert {p.name for p in sources.iterdir()} == {p.name for p in Path("suite").iterdir()} - {"__pycache__"}


@pytest.mark.slow
def test_a_broken_connection_is_made_again(box: Box, settings: Settings, held_run: Held, compiler: object) -> None:
    messages: list[str] = []

    def cut() -> None:
        held_run.await_start()
        for _ in range(2):
            until(lambda: box.link.exists() and box.link.read_text() != "")
            link = box.link.read_text()
            os.kill(int(link), signal.SIGKILL)
            until(functools.partial(box.is_linked_anew, link))
        held_run.go_on()

    thread = threading.Thread(target=cut)
    thread.start()
    run = record_run(settings, messages.append)
    thread.join()
    assert run.record.facts and sum("connecting again" in line for line in messages) == 2
    assert len({line for line in messages if "record: " in line}) == 1 == len(list((box.folder / "profiles").iterdir()))


@contextlib.contextmanager
def command(settings: Settings, *more: str) -> Iterator[subprocess.Popen[str]]:
    """``flashcore profile`` on the box."""
    host = settings.executor.removeprefix("host=")
    words = ["profile", "--suite", settings.suite, "--variant", "plain", "--host", host, *more]
    line = python_process.command("flashcore", *words)
    pipe = subprocess.PIPE
    started = subprocess.Popen(line, env=python_process.environment(), stdout=pipe, stderr=pipe, text=True)
    with started:
        yield started
        started.kill()


@pytest.mark.slow
def test_ctrl_c_ends_the_run_there(box: Box, settings: Settings, held_run: Held) -> None:
    with command(settings) as started:
        held_run.await_start()
        job = int((box.folder / "pid").read_text())
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate()
    assert started.returncode == 130 and "continue with --resume" in errors
    assert has_ended(job)


@pytest.mark.slow
def test_the_run_of_a_killed_command_goes_on_and_can_be_joined(
    box: Box, settings: Settings, held_run: Held, compiler: object
) -> None:
    with command(settings):
        held_run.await_start()
    with pytest.raises(FlashcoreError, match="found one\n  hint: join it with --resume"):
        record_run(settings, silent)
    held_run.go_on()
    with command(settings, "--resume") as started:
        output, errors = started.communicate()
    assert started.returncode == 0, errors
    (run,) = (box.folder / "profiles").iterdir()
    assert os.listdir("profiles") == [run.name] and f"run:    profiles/{run.name}\n" in output
    assert Path("reports", run.name, "index.html").is_file()
    with pytest.raises(FlashcoreError, match="expected an unfinished run"):
        record_run(settings, silent, resume=True)


@pytest.mark.slow
def test_a_run_that_is_killed_there_is_named(box: Box, settings: Settings, held_run: Held) -> None:
    def kill() -> None:
        held_run.await_start()
        os.kill(int((box.folder / "pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(FlashcoreError, match=r"expected a run, found its end: .*\n  hint: .* --resume") as ended:
        record_run(settings, silent)
    thread.join()
    assert ended.value.exit_code == Exit.INCAPABLE


def test_errors_there_are_those_of_the_command(settings: Settings) -> None:
    with pytest.raises(FlashcoreError, match="box: --shape none: expected one of") as wrong:
        record_run(replace(settings, shapes=("none",)), silent)
    with pytest.raises(FlashcoreError, match="box: no GPU on this machine\n  hint: ") as lacking:
        record_run(settings, silent, needed=True)
    assert (wrong.value.exit_code, lacking.value.exit_code) == (Exit.USAGE, Exit.INCAPABLE)


@pytest.mark.slow
def test_what_a_shell_prints_is_skipped_and_what_is_missing_is_named(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "o'dd; touch made"
    venv.create(folder / "bare", with_pip=False)
    noisy = folder / "noisy"
    noisy.write_text(f'#!/bin/sh\necho Welcome\nexec "{folder}/bare/bin/python" "$@"\n')
    noisy.chmod(0o755)
    with pytest.raises(FlashcoreError, match=r"(?s)found no package \w+\n  hint: .*/bare/bin/python there"):
        record_run(replace(settings, executor=f"host=box:{noisy}"), silent)
    with pytest.raises(
        CapabilityError,
        match=r"(?s)expected a connection with Python there, found: .*no/python.*hint: ssh .* --version",
    ):
        record_run(replace(settings, executor="host=box:no/python"), silent)


@pytest.mark.parametrize("address", ["-oProxyCommand=touch made", "", "box:-c", "a b"])
def test_an_address_is_no_option(address: str, settings: Settings) -> None:
    with pytest.raises(UsageError, match=r"expected \[user@\]host\[:python\]"):
        record_run(replace(settings, executor=f"host={address}"), silent)


def test_a_host_that_does_not_answer_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        CapabilityError, match=r"(?s)nowhere.invalid: expected a connection with Python there, found: .*hint: ssh "
    ):
        record_run(replace(settings, executor="host=nowhere.invalid"), silent)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CapabilityError, match="no ssh found"):
        record_run(settings, silent)
