"""The process that runs the suite's code: makes inputs, and, when the kernels' process has ended, judges outputs.

:class:`Answers` starts some. Each answers one JSON object per line, ``{"task": "make" or "judge", "case": …, "seed": …,
"kind": …, "folder": …, "number": …}``; ``{}`` forgets answers. Contents and outputs are raw files in
``folder``: ``x.3.raw``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.measure.machine import python_process
from flashcore.measure.workers.guarded import Outputs
from flashcore.measure.workers.kernel_call import Case, initial
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.references import References
from flashcore.plugins.launcher import program
from flashcore.plugins.launcher.program import Launcher

_LIMIT_S = 600.0
_references = References()


class Answers:
    """Some such processes. They have answers from the first task to judge until :meth:`forget`."""

    def __init__(self, device: str, count: int, variables: Mapping[str, str]) -> None:
        self.count = count
        self._processes = [_Process(device, variables) for _ in range(count)]

    def ask(self, case: Case, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answer to each task; those with the same seed are one process's.

        Raises:
            CapabilityError: a process did not answer: the suite or the machine is at fault, not the candidate.
        """
        given = asdict(case)
        with ThreadPoolExecutor(2 * self.count) as pool:
            answer = lambda task: self._processes[task["seed"] % self.count].answer({**task, "case": given})  # noqa: E731
            return list(pool.map(answer, tasks))

    def forget(self) -> None:
        """Frees all answers, on the GPU too."""
        for process in self._processes:
            process.forget()

    def close(self) -> None:
        for process in self._processes:
            process.close()


class _Process:
    """One that starts at once, and again when it has failed."""

    def __init__(self, device: str, variables: Mapping[str, str]) -> None:
        self._device, self._stack, self._lock = device, contextlib.ExitStack(), threading.Lock()
        self._environment = python_process.environment({**os.environ, **variables})
        self._launcher: Launcher | None = self._started()

    def _started(self) -> Launcher:
        command = python_process.command(__name__, self._device)
        return self._stack.enter_context(program.answering(command, Path(), _LIMIT_S, self._environment))

    def answer(self, task: Mapping[str, Any]) -> Any:
        with self._lock:
            try:
                self._launcher = self._launcher or self._started()
                return self._launcher.ask(json.dumps(task))
            except FlashcoreError as error:
                self.close()  # the next candidate gets another
                hint = "run flashcore check on the suite"
                raise CapabilityError(f"the suite's process failed: {error}", hint) from None

    def forget(self) -> None:
        if self._launcher:
            self.answer({})

    def close(self) -> None:
        self._launcher = None
        self._stack.close()


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # prints of the suite are no answers
    import torch

    torch.empty(1, device=sys.argv[1])  # its context takes long
    for line in sys.stdin:
        try:
            answer = {"event": "answer", **_performed(json.loads(line))}
        except Exception as error:  # of the suite
            answer = {"event": "error", "message": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


def _performed(task: Mapping[str, Any]) -> dict[str, Any]:
    if not task:
        _references.clear()
        if sys.argv[1] == "cuda":
            import torch

            torch.cuda.empty_cache()
        return {}
    case = Case.from_json(task["case"])
    perform = {"make": make, "judge": judge}[task["task"]]
    problem = load_problem(case.root, case.problem_file)
    make_inputs = lambda params, *rest: _inputs(case.root, case.problem_file, json.dumps(params), *rest)  # noqa: E731
    return perform(case, SimpleNamespace(**{**vars(problem), "make_inputs": make_inputs}), task)


@functools.lru_cache(maxsize=64)
def _inputs(root: str, file: str, params: str, *seed_device_and_kind: Any) -> Any:
    """Inputs, which are needed again to judge what was made of them."""
    return load_problem(root, file).make_inputs(json.loads(params), *seed_device_and_kind)


def make(case: Case, problem: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the inputs; returns the operator's numbers."""
    import torch

    inputs = problem.make_inputs(dict(case.params), task["seed"], sys.argv[1], task["kind"])
    for a in case.arguments:
        if a.kind != "tensor" or a.absent(case.params) or (a.mutable and not a.inout):
            continue
        value = initial(case, a, inputs) if a.inout else inputs[a.name]
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
        raw.tofile(Path(task["folder"], f"{a.name}.{task['number']}.raw"))
    numbers = (int, float)
    return {"scalars": {name: value for name, value in inputs.items() if isinstance(value, numbers)}}


def judge(case: Case, problem: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """Complaints about the outputs in ``files``, by output."""
    import torch

    expected = _references.get(case, problem, sys.argv[1], task["seed"], task["kind"])
    outputs = Outputs({a.name: (a.sizes(case.params), a.dtype) for a in case.arguments if a.mutable}, sys.argv[1])
    for name, file in task["files"].items():
        raw, output = bytearray(Path(file).read_bytes()), outputs[name]
        output.copy_(torch.frombuffer(raw, dtype=torch.uint8).view(output.dtype).reshape(output.shape))
    return {"complaints": expected.complaints(outputs)}


if __name__ == "__main__":
    main()
