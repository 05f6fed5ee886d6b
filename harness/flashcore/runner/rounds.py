"""Rounds of supervised children, for tools that report cases' outcomes only when their process ends.

If such a tool (a profiler, a sanitizer) dies, it may lose results of cases that ran well, and it may report one result
for all cases of its process. Cases that a round leaves open run again in the next one. All state is in the files of
``round-N/``: a stage interrupted at any moment, even by kill -9, is completed by calling :func:`settle` again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from flashcore.model.cause import Cause
from flashcore.model.causes import NOT_RUN, HungBefore
from flashcore.runner.hung_variants import hung
from flashcore.runner.journal import Task, TaskResult, answers, begun

ROUNDS = 3  # a case still open after this many rounds stays open

T = TypeVar("T")


@dataclass(slots=True)
class Settled(Generic[T]):
    """The cases' state so far, by name.

    ``reports``: the tool's output. ``failed``: why a case failed; it is not run again. ``open``: why a case that ran
    is run again: its report was lost or is in doubt. ``more_rounds`` is added to :data:`ROUNDS`.
    """

    reports: dict[str, T] = field(default_factory=dict)
    failed: dict[str, Cause] = field(default_factory=dict)
    open: dict[str, Cause] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    more_rounds: int = 0

    def cause(self, name: str) -> Cause:
        """Why the tool reported nothing about a case."""
        return self.failed.get(name) or self.open.get(name) or NOT_RUN()

    @property
    def hung(self) -> dict[str, HungBefore]:
        """The variants that hung, as :func:`flashcore.runner.hung_variants.hung` gives them."""
        return hung(TaskResult(name, "failed", cause) for name, cause in self.failed.items())


def settle(
    folder: Path,
    tasks: Sequence[Task],
    perform: Callable[[Path, list[Task], Settled[T]], object],
    harvest: Callable[[Path, Mapping[str, TaskResult], Settled[T]], None],
) -> Settled[T]:
    """Reads earlier rounds in ``folder``, then runs rounds until each case has a report, has failed, or was left open
    too often.

    Args:
        perform: supervises the tasks in a round's folder.
        harvest: adds the results in a round's folder, given its journals' answers. It only reads files, so it can be
            called again.

    Raises:
        OSError: ``folder`` cannot be written.
    """
    settled: Settled[T] = Settled()
    earlier = _performed(folder)
    for path in earlier:
        harvest(path, answers(path), settled)
    first = number = len(earlier)
    while number < first + ROUNDS + settled.more_rounds:
        stuck = settled.hung
        for task in tasks:
            if task.variant in stuck and task.name not in settled.reports:
                settled.failed.setdefault(task.name, stuck[task.variant])
        pending = [t for t in tasks if t.name not in settled.reports and t.name not in settled.failed]
        if not pending:
            break
        path = _path(folder, number)
        path.mkdir(parents=True, exist_ok=True)
        perform(path, pending, settled)
        harvest(path, answers(path), settled)
        number += 1
    return settled


def following(folder: Path) -> Path:
    """The folder of the next round."""
    return _path(folder, len(_performed(folder)))


def _performed(folder: Path) -> list[Path]:
    """The folders of performed rounds, without one in which children were only started ahead."""
    folders: list[Path] = []
    while (path := _path(folder, len(folders))).is_dir() and _began(path):
        folders.append(path)
    return folders


def _began(path: Path) -> bool:
    return (path / "supervisor.jsonl").exists() or any(map(begun, path.glob("journal-*.jsonl")))


def _path(folder: Path, number: int) -> Path:
    return folder / f"round-{number}"


def progress_line(result: TaskResult, ok: str = "ok") -> str:
    """A result as a line of progress."""
    reason = result.reason.partition("\n")[0]
    ending = {"ok": ok, "skipped": reason}.get(result.status, f"failed: {reason}")
    return f"{result.name}: {result.seconds:.1f} s, {ending}"
