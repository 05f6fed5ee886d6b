"""Introspect: asks this GPU a question that a suite's code rests on, and keeps the answer as a source file.

A problem that has such a question holds a function ``rewritten(answer, capability)``: from an operator's
outputs (nested lists, by name) and the compute capability (90 for 9.0) it makes the file, its text and what
in it is news; an answer that cannot be one raises ``ValueError``. The kernels that use the file refuse to
run on a machine that has not answered so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.errors import FlashcoreError
from flashcore.machine import python_process
from flashcore.worker import supervisor
from flashcore.worker.journal import Journal, Task, child

if TYPE_CHECKING:
    from flashcore.worker.kernel_call import Case

#: What a problem with a question to the machine has.
HOOK = "rewritten"
TARGET = "flashcore.stages.introspect"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a machine answered: the file that holds it, its text, and how it differs from what is there."""

    case: str
    path: Path
    text: str
    news: tuple[str, ...]


def asks(problem: ModuleType) -> bool:
    """Whether the problem has a question to the machine."""
    return hasattr(problem, HOOK)


def run(
    cases: Sequence[Case],
    folder: Path,
    capability: tuple[int, int],
    *,
    device: str = "cuda",
    time_limit: float = 60.0,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Answer]:
    """Asks the machine each case's question once, in a child process.

    Args:
        folder: an empty one, for the child's journal and log.
        capability: of the GPU, as (9, 0).

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a case failed, or answered what cannot be.
    """
    from flashcore.worker.kernel_call import load_problem

    tasks = [Task(f"{c.variant}/{c.shape}", {"case": c.to_json(), "device": device}) for c in cases]

    def command(task_file: Path, journal: Path) -> list[str]:
        return python_process.command(TARGET, str(task_file), str(journal))

    found = []
    for case, result in zip(cases, supervisor.supervise(tasks, folder, command, time_limit=time_limit), strict=True):
        if result.status != "ok" or result.data is None:
            raise FlashcoreError(f"{result.name}: expected the machine's answer, found: {result.reason}")
        problem = load_problem(case.root, case.problem_file)
        try:
            path, text, news = getattr(problem, HOOK)(result.data, capability[0] * 10 + capability[1])
        except ValueError as error:
            raise FlashcoreError(f"{result.name}: this machine's answer is none: {error}") from error
        progress(f"{result.name}: {result.seconds:.1f} s")
        found.append(Answer(result.name, Path(path), text, tuple(news)))
    return found


def perform(task: Task, journal: Journal) -> dict[str, Any]:
    """One call; its outputs as nested lists."""
    from flashcore.worker.kernel_call import Caller, Case, load_problem, require_device, synchronize

    device = task.payload["device"]
    require_device(device)
    case = Case.from_json(task.payload["case"])
    problem = load_problem(case.root, case.problem_file)
    caller = Caller(case, problem, device)
    inputs = problem.make_inputs(dict(case.params), 0, device)
    outputs = caller.outputs()
    caller.call(inputs, outputs)
    synchronize(device)
    return {name: tensor.tolist() for name, tensor in outputs.items()}


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], perform))
