"""The process that runs the suite's code: makes inputs, and, when the kernels' process has ended, judges outputs.

:class:`Answers` starts some. Each answers one JSON object per line, ``{"task": "make" or "judge", "case": …, "seed": …,
"kind": …, "number": …}``. Contents are raw files in the folder that is its argument, such as ``x.3.raw``. Expected
answers exist only while it compares.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import python_process
from flashcore.runner.guarded import Outputs
from flashcore.runner.inputs import make_inputs_once
from flashcore.runner.kernel_call import KernelCall, initial
from flashcore.runner.problem_file import load_problem
from flashcore.runner.references import References
from flashcore_judge.launcher.program import Launcher

_LIMIT_S = 600.0
#: The most places of another kind in an input of two kinds. A kernel that tells kinds apart by 32 elements of a row of
#: 1,024 is wrong on 40 % of such inputs, and with one place on 12 %.
_PARTS = 8
#: Types of tensors that may be of several kinds. Others, such as indices, are all of one: they must fit together.
MIXED_TYPES = {"float16", "bfloat16", "float32", "float64"}


class Answers:
    """Some such processes, which work in a folder and on a GPU."""

    def __init__(self, count: int, folder: Path, gpu: str) -> None:
        threads = max(len(os.sched_getaffinity(0)) // (2 * count), 1)  # more wait for each other
        variables = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": gpu}
        environment = python_process.environment({**os.environ, **variables})
        command = python_process.command(__name__, str(folder))
        self._processes = [  # each with a thread that asks it
            (Launcher(command, folder, _LIMIT_S, environment), ThreadPoolExecutor(1)) for _ in range(count)
        ]

    def ask(self, case: KernelCall, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Each task with its answer; those with the same number are one process's.

        Raises:
            CapabilityError: a process did not answer: the suite or the machine is at fault, not the candidate.
        """
        given, answers = case.to_json(), []
        for task in tasks:
            process, thread = self._processes[task["number"] % len(self._processes)]
            answers.append((task, thread.submit(process.ask, json.dumps({**task, "case": given}))))
        try:
            return [{**task, **answer.result()} for task, answer in answers]
        except FlashcoreError as error:
            raise CapabilityError(f"the suite's process failed: {error}", "run flashcore check on the suite") from None

    def close(self) -> None:
        for process, _ in self._processes:
            process.close()


def main() -> None:
    """Answers until the input ends."""
    answers = python_process.answers()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.empty(1, device=device)  # its context takes long
    for line in sys.stdin:
        try:
            task = json.loads(line)
            case = KernelCall.from_json(task["case"])
            problem = load_problem(case.root, case.problem_file)
            mix(problem)
            answer = {"event": "answer", **{"make": make, "judge": judge}[task["task"]](case, problem, task, device)}
        except Exception as error:  # of the suite
            answer = {"event": "error", "message": f"{type(error).__name__}: {error}"}
        torch.cuda.empty_cache()  # nothing without a GPU
        answers.write(json.dumps(answer) + "\n")


@functools.cache
def mix(problem: Any) -> None:
    """Has the problem make inputs of several kinds, too: parts of ``normal+large`` are large. They are kept, to judge
    what was made of them."""
    make = problem.make_inputs

    def mixed(params: Any, seed: int, device: str, kind: str = problem.KINDS[0]) -> Any:
        (first, _, other), dice = kind.partition("+"), random.Random(seed)
        inputs = dict(make(params, seed, device, first))
        for name, x in make(params, seed, device, other).items() if other else ():
            if str(getattr(x, "dtype", "")).removeprefix("torch.") in MIXED_TYPES and x.dim():
                rows = inputs[name].clone().reshape(-1, x.shape[-1])
                for _ in range(dice.randint(1, _PARTS)):
                    columns = _part(dice, x.shape[-1]) if dice.random() < 0.5 else slice(None)
                    place = _part(dice, len(rows)), columns
                    rows[place] = x.reshape(rows.shape)[place]
                inputs[name] = rows.reshape(x.shape)
        return inputs

    problem.make_inputs = mixed
    make_inputs_once(problem)


def _part(dice: random.Random, size: int) -> slice:
    """Some places in a row, often few: no sample of it tells what is between."""
    count = int(size ** dice.random())
    start = dice.randint(0, size - count)
    return slice(start, start + count)


def make(case: KernelCall, problem: Any, task: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Writes the inputs; returns the operator's numbers."""
    import torch

    inputs = problem.make_inputs(dict(case.params), task["seed"], device, task["kind"])
    for a in case.arguments:
        if a.kind != "tensor" or a.absent(case.params) or (a.mutable and not a.inout):
            continue
        value = initial(case, a, inputs) if a.inout else inputs[a.name]
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        raw.numpy().tofile(Path(sys.argv[1], f"{a.name}.{task['number']}.raw"))
    return {"scalars": {name: value for name, value in inputs.items() if isinstance(value, int | float)}}


def judge(case: KernelCall, problem: Any, task: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Complaints about the outputs in ``file``, which are removed."""
    import torch

    expected = References().get(case, problem, device, task["seed"], task["kind"])
    outputs = Outputs({a.name: (a.sizes(case.params), a.dtype) for a in case.arguments if a.mutable}, device)
    for name, output in outputs.items():
        path = Path(f"{task['file']}.{name}")
        output.copy_(torch.from_file(str(path), size=output.numel(), dtype=output.dtype).reshape(output.shape))
        path.unlink()
    return {"complaints": expected.complaints(outputs)}


if __name__ == "__main__":
    main()
