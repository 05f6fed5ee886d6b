"""The process that runs the suite's code: makes inputs, and, when the kernels' process has ended, judges outputs.

:class:`Answers` starts it. It reads one JSON object per line, ``{"task": "make" or "judge", "case": …, "seed": …,
"kind": …, "device": …, "folder": …, "number": …}``, and answers each with one; ``{}`` forgets answers. Contents and
outputs are raw files in ``folder``: ``x.3.raw``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import CapabilityError
from flashcore.measure.machine import python_process
from flashcore.measure.workers.guarded import Outputs
from flashcore.measure.workers.kernel_call import Case, initial
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.references import References

if TYPE_CHECKING:
    from torch import Tensor

_references = References()


class Answers:
    """The process. It has answers from the first task to judge until :meth:`forget`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, case: Case, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answer to each task.

        Raises:
            CapabilityError: it did not answer: the suite or the machine is at fault, not the candidate.
        """
        made = []
        for task in tasks:
            line = json.dumps({**task, "case": asdict(case), "device": self._device})
            made.append(json.loads(self._answer(line.encode() + b"\n")))
        return made

    def forget(self) -> None:
        """Frees all answers, on the GPU too."""
        if self._process:
            self._answer(b"{}\n")

    def close(self) -> None:
        self._end()
        self._log.close()

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _answer(self, line: bytes) -> bytes:
        if self._process is None:
            command, pipe = python_process.command(__name__), subprocess.PIPE
            environment = python_process.environment()
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log, env=environment)
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
        if answer := self._process.stdout.readline():
            return answer
        self._end()  # the next candidate gets another
        self._log.seek(0)
        message = self._log.read()[-1000:].decode(errors="replace")
        raise CapabilityError(f"the suite's process failed: {message}", "run flashcore check on the suite")


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # prints of the suite are no answers
    for line in sys.stdin:
        task = json.loads(line)
        if task:
            case, root = Case.from_json(task["case"]), task["case"]["root"]
            perform = {"make": make, "judge": judge}[task["task"]]
            answer = perform(case, load_problem(root, task["case"]["problem_file"]), task)
        else:
            answer = _forgotten()
        answers.write(json.dumps(answer) + "\n")


def make(case: Case, problem: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the inputs; returns the operator's numbers."""
    import torch

    inputs = problem.make_inputs(dict(case.params), task["seed"], task["device"], task["kind"])
    for a in case.arguments:
        if a.kind != "tensor" or a.absent(case.params) or (a.mutable and not a.inout):
            continue
        value = initial(case, a, inputs) if a.inout else inputs[a.name]
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
        Path(task["folder"], f"{a.name}.{task['number']}.raw").write_bytes(raw)
    numbers = (int, float)
    return {"scalars": {name: value for name, value in inputs.items() if isinstance(value, numbers)}}


def judge(case: Case, problem: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """Complaints about the outputs in ``files``, by output."""
    expected = _references.get(case, problem, task["device"], task["seed"], task["kind"])
    wanted = {a.name: (a.sizes(case.params), a.dtype) for a in case.arguments if a.mutable}
    outputs = Outputs(wanted, task["device"])
    for name, file in task["files"].items():
        outputs[name].copy_(_tensor(Path(file), outputs[name]))
    return {"complaints": expected.complaints(outputs)}


def _forgotten() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    _references.clear()
    if torch and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return {}


def _tensor(file: Path, like: Tensor) -> Tensor:
    import torch

    raw = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
    return raw.view(like.dtype).reshape(like.shape).to(like.device)


if __name__ == "__main__":
    main()
