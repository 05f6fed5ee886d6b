"""The GPUs of this host as places where children run.

At any place, a child's answers are in a journal of the stage's own folder, with the GPU that it ran on beside them.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashcore.measure.workers.journal import Task, first_share, read_journal
from flashcore.measure.workers.process import Process
from flashcore.measure.workers.program import Child, Program


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """A GPU of this host. A lost one stays lost: the driver needs a reset first.

    Args:
        gpu: its UUID; empty: the GPU that CUDA gives.
    """

    gpu: str
    host: None = None

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        return Process(folder, tasks, program, gpu=self.gpu)

    def is_back(self) -> bool:
        return False


def measured_on(folder: Path, *, below: bool = True) -> dict[str, str]:
    """The UUID of the GPU that each task of the journals in ``folder`` (and below it) ran on, by the task's name; only
    those whose GPU was chosen. Of a task that was begun twice, the second time counts."""
    gpus: dict[str, str] = {}
    journals = folder.rglob("journal-*.jsonl") if below else folder.glob("journal-*.jsonl")
    for journal in sorted(journals, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p.relative_to(folder)))]):
        with suppress(OSError, ValueError, AttributeError):
            task_file = journal.with_name(f"{journal.stem.replace('journal', 'tasks')}.json")
            if gpu := first_share(task_file).get("gpu"):
                gpus |= {line["name"]: str(gpu) for line in read_journal(journal) if line["event"] == "begin"}
    return gpus


def lost_in(folder: Path) -> dict[str, str]:
    """The GPUs that were lost while the tasks of ``folder`` and below were run: UUID → why."""
    lines = (line for path in sorted(folder.rglob("supervisor.jsonl")) for line in read_journal(path))
    return {line["name"]: line["reason"] for line in lines if line["event"] == "lost"}
