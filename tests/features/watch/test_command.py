"""``flashcore watch`` without a GPU: what a save answers, on a terminal and for programs."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashcore.cli import main as cli
from flashcore.errors import Exit
from tests.conftest import Built
from tests.support.watching import PATIENCE, Watched, answers

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def place(tmp_path: Path, toy: Built) -> Path:
    """A folder with the toy suite's build: its operator's binding needs no second compilation."""
    shutil.copytree(toy.folder, tmp_path / "build")
    return tmp_path


@pytest.fixture
def watched(place: Path) -> Iterator[Watched]:
    made = Watched(place)
    made.start()
    try:
        yield made
    finally:
        made.interrupt()
        made.ends()


def test_a_save_is_answered_by_its_budgets_and_advice(watched: Watched) -> None:
    first = watched.until("idle")
    assert first[0] == {"version": 1, "event": "save", "save": 1, "files": []}
    assert answers(first)["budgets"]["status"] == "ok" and "limits" in answers(first)
    watched.save(lambda text: text.replace("FLASHCORE_VARIANT", "__constant__ int one = 1;\nFLASHCORE_VARIANT"))
    second = watched.until("idle")
    assert second[0]["files"] == ["scale.cu"] and answers(second)["budgets"]["save"] == 2
    assert 0 < answers(second)["budgets"]["seconds"] < PATIENCE


def test_keys_come_from_a_pipe_too(place: Path) -> None:
    made = Watched(place)
    made.start()
    made.until("idle")
    made.press("p\n")
    assert answers(made.until("idle"))["budgets"]["save"] == 2
    made.press("q")
    made.ends()


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
    assert failed["budgets"]["status"] == "failed" and "scale.cu" in "".join(failed["budgets"]["lines"])
    watched.save(lambda _: good.replace("FLASHCORE_VARIANT", "__constant__ int two = 2;\nFLASHCORE_VARIANT"))
    assert answers(watched.until("idle"))["budgets"]["status"] == "ok"


def test_an_edited_problem_or_manifest_is_answered_although_the_machine_code_is_the_same(watched: Watched) -> None:
    watched.until("idle")
    with (watched.suite / "problem.py").open("a") as problem:
        problem.write("# of another version\n")
    assert answers(watched.until("idle"))["budgets"]["save"] == 2
    manifest = watched.suite / "suite.toml"
    limit = '[[budget]]\nname = "tight"\nfact = "registers"\nmax = 1\nsource = "a test"\n'
    manifest.write_text(f"{manifest.read_text()}\n{limit}")
    budgets = answers(watched.until("idle"))["budgets"]
    assert budgets["status"] == "failed" and any("expected: ≤ 1" in line for line in budgets["lines"]), budgets


def test_a_header_that_is_removed_is_missed(watched: Watched) -> None:
    watched.until("idle")
    (watched.suite / "include" / "scale.cuh").unlink()
    failed = answers(watched.until("idle"))["budgets"]
    assert failed["status"] == "failed" and "scale.cuh" in "".join(failed["lines"])


def test_a_file_that_takes_the_place_of_the_source_is_a_save(watched: Watched) -> None:
    """As of an editor that writes a temporary file first; the time of an older file is not the save's."""
    watched.until("idle")
    temporary = watched.suite / "scale.cu.tmp"
    temporary.write_text(watched.source.read_text() + "\n__constant__ int edit = 1;\n")
    os.utime(temporary, (1e9, 1e9))
    temporary.replace(watched.source)
    events = watched.until("idle")
    while not answers(events):
        events = watched.until("idle")
    assert 0 < answers(events)["budgets"]["seconds"] < PATIENCE


@pytest.mark.slow
def test_a_source_that_another_one_includes_is_answered_by_both(watched: Watched) -> None:
    watched.until("idle")
    other = watched.suite / "other.cu"
    watched.source.rename(other)
    watched.until("idle")
    watched.source.write_text('#include "other.cu"\n')
    watched.until("idle")
    other.write_text(other.read_text() + "\n__constant__ int edit = 1;\n")
    assert answers(watched.until("idle"))["budgets"]["status"] == "ok"


@pytest.mark.slow
def test_a_folder_that_the_manifest_includes_later_is_watched(watched: Watched) -> None:
    watched.until("idle")
    folder = watched.folder / "later"
    folder.mkdir()
    (folder / "later.cuh").write_text("#define LATER 1\n")
    manifest = watched.suite / "suite.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace('include = ["include"]', 'include = ["include", "../later"]'))
    assert manifest.read_text() != text
    watched.until("idle")
    watched.save(lambda text: f'#include "later.cuh"\n{text}\n__constant__ int later = LATER;\n')
    assert answers(watched.until("idle"))["budgets"]["status"] == "ok"
    time.sleep(2.0)  # until the folder is watched
    (folder / "later.cuh").write_text("no declaration\n")
    assert answers(watched.until("idle"))["budgets"]["status"] == "failed"


def test_quitting_ends_a_recording_under_way(place: Path) -> None:
    made = Watched(place)
    made.start()
    made.until("idle")
    problem = made.suite / "problem.py"
    slow = f"import pathlib, time\npathlib.Path({str(place / 'began')!r}).touch()\ntime.sleep({2 * PATIENCE})\n"
    problem.write_text(problem.read_text().replace("from typing", f"{slow}from typing"))
    made.press("r")
    while not (place / "began").exists():
        time.sleep(0.1)
    made.press("q")
    made.ends()  # in less than that


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


def test_on_a_terminal_it_draws_answers_and_obeys_keys(place: Path) -> None:
    made = Watched(place)
    main, child = pty.openpty()
    process = subprocess.Popen(made.command, cwd=place, env=made.env, stdin=child, stdout=child, stderr=child)
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
@pytest.mark.usefixtures("whole_cuda_headers")
def test_on_a_gpu_all_four_questions_are_answered(leased_gpu: None, watched: Watched) -> None:
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
    # A build that the process has loaded before: timed longer, undone and done again.
    watched.press("b")
    again = answers(watched.until("idle"))
    assert (again["right"]["status"], again["faster"]["status"]) == ("ok", "ok"), again
    for saved in (good, text, good):
        watched.source.write_text(saved)
        again = answers(watched.until("idle"))
        assert (again["right"]["status"], again["faster"]["status"]) == ("ok", "ok"), again


def test_a_watch_that_ends_leaves_interrupts_as_they_were(
    toy: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python programs that call the command in their own process are interrupted by Ctrl-C afterwards."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert cli.main(["watch", "--suite", toy.suite.root]) == Exit.INCAPABLE
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert "watchfiles" in capsys.readouterr().err
