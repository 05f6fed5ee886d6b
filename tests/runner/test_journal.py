"""The journal: only whole lines count, and what was begun is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.model.causes import Hang, HungBefore
from flashcore.runner import journal
from flashcore.runner.hung_variants import hung
from flashcore.runner.journal import (
    Begun,
    Journal,
    Lacks,
    Lost,
    Message,
    Reached,
    Share,
    Started,
    Task,
    TaskResult,
    TaskStep,
    decode,
    encode,
    messages,
    read_journal,
)

MESSAGES: list[Message] = [
    Started(7),
    Begun("v/s", 1.5),
    Reached("v/s", TaskStep("timed", "v")),
    TaskResult("v/s", "ok", None, {"us": [1.0]}, 0.5),
    TaskResult("v/s", "failed", Hang(2.0), None, 2.0, TaskStep("call"), poisoned=True),
    Lacks("no GPU", "plug one in"),
    Lost("GPU-a", "no driver"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_is_a_line_and_comes_back(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n") and decode(line) == message
    assert all(decode(line[:n]) is None for n in range(len(line) - 1))


def test_a_share_comes_back() -> None:
    share = Share((Task("v/s", {"do": [1]}),), "GPU-a", more=True, journal="elsewhere")
    assert Share.decode(share.encode()) == share
    with pytest.raises(ValueError):
        Share.decode(share.encode()[:9])


def test_only_whole_lines_are_read() -> None:
    assert list(messages(encode(Begun("a", 1.0)) + b'{"event": "ans')) == [Begun("a", 1.0)]
    assert list(messages(b'garbage\n\n[1]\n"text"\n' + b"[" * 50_000 + b"\n")) == []


def test_lines_of_another_form_are_left_out() -> None:
    lines: list[dict[str, object]] = [
        {"event": "begin"}, {"event": "answer"}, {"event": "answer", "name": "a", "status": "failed", "cause": 1},
        {"event": "lacks", "what": "a"}, {"event": "start"}, {"event": ["begin"]}, {"event": "other"}, {"name": "a"},
        {"event": "step", "name": "a", "step": 3},
    ]  # fmt: skip
    assert list(messages(b"\n".join(json.dumps(line).encode() for line in lines))) == []


def test_a_journal_is_written_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "journal-001.jsonl"
    log = Journal(path)
    log.begin("v/s")
    log.step("v/s", "call")
    log.fail("v/s", Hang(1.0), poisoned=True)
    begun, step, result = [m for m in read_journal(path) if not isinstance(m, Started)]
    assert isinstance(begun, Begun) and begun.name == "v/s" and step == Reached("v/s", TaskStep("call"))
    assert isinstance(result, TaskResult) and result.poisoned and result.step == TaskStep("call")
    log.move(str(tmp_path / "journal-002.jsonl"))
    log.begin("w/s")
    log.result("w/s", {"us": 1})
    log.close()
    assert journal.begun(path) == ["v/s"] and journal.begun(tmp_path / "journal-002.jsonl") == ["w/s"]
    assert {n: r.status for n, r in journal.answers(tmp_path).items()} == {"v/s": "failed", "w/s": "ok"}


def test_the_first_answer_to_a_task_counts_and_the_supervisors_last(tmp_path: Path) -> None:
    def write(name: str, *results: TaskResult) -> None:
        (tmp_path / name).write_bytes(b"".join(map(encode, results)))

    write("journal-001.jsonl", TaskResult("a", "ok", None, {"n": 1}))
    write("journal-002.jsonl", TaskResult("a", "ok", None, {"n": 2}), TaskResult("b", "failed", Hang(2)))
    write("supervisor.jsonl", TaskResult("b", "ok"), TaskResult("v/s", "failed", Hang(2), step=TaskStep("x")))
    result = journal.answers(tmp_path)
    assert {n: (r.status, r.data, r.cause) for n, r in result.items()} == {
        "a": ("ok", {"n": 1}, None), "b": ("failed", None, Hang(2)), "v/s": ("failed", None, Hang(2))
    }  # fmt: skip
    assert result["v/s"].step.what == "x" and hung(result.values()) == {"v": HungBefore("s", Hang(2))}
    assert journal.answers(tmp_path / "nowhere") == {}
