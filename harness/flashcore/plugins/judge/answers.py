"""The process that runs the suite's code: makes inputs, and, when the kernels' process has ended, judges outputs.

Reads one JSON object per line, ``{"task": "make", "judge" or "forget", "case": …, "seed": …, "kind": …, "device": …,
"folder": …, "number": …}``, and answers each with one. Contents and outputs are raw files in ``folder``: ``x.3.raw``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.measure.workers.guarded import Outputs
from flashcore.measure.workers.kernel_call import Case, initial
from flashcore.measure.workers.problem_file import load_problem
from flashcore.measure.workers.references import References

if TYPE_CHECKING:
    from torch import Tensor

_references = References()


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # prints of the suite are no answers
    for line in sys.stdin:
        task = json.loads(line)
        case, problem = Case.from_json(task["case"]), load_problem(task["case"]["root"], task["case"]["problem_file"])
        answer = {"make": make, "judge": judge, "forget": forget}[task["task"]](case, problem, task)
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


def forget(case: Case, problem: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """Frees all answers, on the GPU too."""
    import torch

    _references.clear()
    if task["device"] != "cpu":
        torch.cuda.empty_cache()
    return {}


def _tensor(file: Path, like: Tensor) -> Tensor:
    import torch

    raw = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
    return raw.view(like.dtype).reshape(like.shape).to(like.device)


if __name__ == "__main__":
    main()
