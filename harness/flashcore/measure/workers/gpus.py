"""This host's GPUs as places where children run.

Wherever a child runs, its answers are in a journal in the stage's folder, and its GPU is in the task file next to it.
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
    """A GPU of this host. A lost one stays lost, since the driver needs a reset first.

    Args:
        gpu: its UUID; empty: CUDA's default GPU.
    """

    gpu: str
    host: None = None

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        return Process(folder, tasks, program, gpu=self.gpu)

    def is_back(self) -> bool:
        return False


def measured_on(folder: Path, *, below: bool = True) -> dict[str, str]:
    """Task name → the UUID of its GPU, from the journals in ``folder`` (and below it), for tasks whose GPU was
    selected. If a task began twice, the second time counts."""
    gpus: dict[str, str] = {}
    journals = folder.rglob("journal-*.jsonl") if below else folder.glob("journal-*.jsonl")
    for journal in sorted(journals, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p.relative_to(folder)))]):
        with suppress(OSError, ValueError, AttributeError):
            task_file = journal.with_name(f"{journal.stem.replace('journal', 'tasks')}.json")
            if gpu := first_share(task_file).get("gpu"):
                gpus |= {line["name"]: str(gpu) for line in read_journal(journal) if line["event"] == "begin"}
    return gpus


def lost_in(folder: Path) -> dict[str, str]:
    """The GPUs lost while the tasks in ``folder`` and below ran: UUID → why."""
    lines = (line for path in sorted(folder.rglob("supervisor.jsonl")) for line in read_journal(path))
    return {line["name"]: line["reason"] for line in lines if line["event"] == "lost"}
