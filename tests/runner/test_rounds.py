"""Rounds: what a round leaves open is run in another one, and what earlier attempts left counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flashcore.model.causes import MESSAGE, NOT_RUN, UNANSWERED, Hang, HungBefore
from flashcore.runner.journal import Journal, Task, TaskResult
from flashcore.runner.rounds import ROUNDS, Settled, progress_line, settle

TASKS = [Task(name, {}) for name in ("good", "bad", "lost")]

FAULT, LOST = MESSAGE("its own fault"), UNANSWERED()


class Tool:
    """Finds what is good, blames what is bad, and loses the rest unless told to find it."""

    def __init__(self, finds: str = "good") -> None:
        self.finds = finds
        self.rounds: list[list[str]] = []

    def perform(self, path: Path, tasks: list[Task], settled: Settled[str]) -> None:
        self.rounds.append([t.name for t in tasks])
        journal = Journal(path / "journal-001.jsonl")
        for task in tasks:
            journal.begin(task.name)
            journal.result(task.name, {"said": path.name})
        journal.close()

    def harvest(self, path: Path, answers: Mapping[str, TaskResult], settled: Settled[str]) -> None:
        for name, result in answers.items():
            assert result.data is not None
            if name in self.finds:
                settled.reports[name] = result.data["said"]
            elif name == "bad":
                settled.failed[name] = FAULT
            else:
                settled.open[name] = LOST


def test_only_what_is_open_is_run_again_and_not_for_ever(tmp_path: Path) -> None:
    tool = Tool()
    settled = settle(tmp_path, TASKS, tool.perform, tool.harvest)
    assert tool.rounds == [["good", "bad", "lost"], *[["lost"]] * (ROUNDS - 1)]
    assert (settled.reports, settled.failed) == ({"good": "round-0"}, {"bad": FAULT})
    assert [settled.cause(t.name) for t in TASKS[1:]] == [FAULT, LOST]
    assert settled.cause("other") == NOT_RUN()


def test_called_again_it_reads_what_was_left_and_tries_the_open_anew(tmp_path: Path) -> None:
    settle(tmp_path, TASKS, (tool := Tool()).perform, tool.harvest)
    later = Tool("good lost")
    settled = settle(tmp_path, TASKS, later.perform, later.harvest)
    assert later.rounds == [] and settled.reports == {"good": "round-0", "lost": f"round-{ROUNDS - 1}"}
    again = Tool()
    settle(tmp_path, TASKS, again.perform, again.harvest)
    assert again.rounds == [["lost"]] * ROUNDS
    assert (tmp_path / f"round-{2 * ROUNDS - 1}").is_dir(), "rounds are never run into each other"


def test_rounds_that_cost_nobody_a_chance(tmp_path: Path) -> None:
    tool = Tool()

    def harvest(path: Path, answers: Mapping[str, TaskResult], settled: Settled[str]) -> None:
        tool.harvest(path, answers, settled)
        settled.more_rounds = 2

    settle(tmp_path, TASKS, tool.perform, harvest)
    assert len(tool.rounds) == ROUNDS + 2


def test_a_line_of_progress() -> None:
    assert progress_line(TaskResult("v/s", "ok", seconds=1.24)) == "v/s: 1.2 s, ok"
    failed = TaskResult("v/s", "failed", MESSAGE("it fell\nand more"), seconds=2)
    assert progress_line(failed, "ran") == "v/s: 2.0 s, failed: it fell"


def test_a_variant_that_hung_before_an_interruption_is_not_run_again(tmp_path: Path) -> None:
    class Hanging(Tool):
        def harvest(self, path: Path, answers: Mapping[str, TaskResult], settled: Settled[str]) -> None:
            for name in answers:
                if name == "slow/a":
                    settled.failed[name] = Hang(60.0)
                else:
                    settled.reports[name] = path.name

    tasks = [Task(name, {}) for name in ("slow/a", "slow/b", "other/a")]
    settle(tmp_path, tasks[:1], (tool := Hanging()).perform, tool.harvest)
    settled = settle(tmp_path, tasks, (later := Hanging()).perform, later.harvest)
    assert later.rounds == [["other/a"]]
    assert settled.cause("slow/b") == HungBefore("a", Hang(60.0))
