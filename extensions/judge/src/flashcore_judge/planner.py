"""The child in the sandbox: compiles a candidate's variant and records its launches. Its answer is not trusted.

``planner ROOT VARIANT ARCH SHAPE…``: a variant of the suite in that folder. Writes ``{"shapes": {shape: [launches of
some numbers…]}, "cubins": {file: base64}}``; its exit code is that of an error.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.machine import python_process
from flashcore.model.record import Artifact
from flashcore.model.settings import Settings
from flashcore.pipeline.variant_calls import variant_calls
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.problem_file import all_kinds, load_problem
from flashcore_judge.launcher import cuda_source, planned


def main() -> None:
    answers = python_process.answers()
    try:
        answer = _planned(*sys.argv[1:])
    except FlashcoreError as error:
        print(error, flush=True)
        os._exit(error.exit_code)
    answers.write(json.dumps(answer))
    answers.close()
    os._exit(0)  # whatever the candidate left running


def _planned(root: str, name: str, arch: str, *shapes: str) -> dict[str, Any]:
    (made := Path("cubins")).mkdir()  # all that is written is the sandbox's
    launcher = "flashcore_judge.launcher.program:target"
    settings = Settings(root, variants=(name,), shapes=shapes, upto=None, launcher=launcher)
    artifact, cases = variant_calls(settings, name, arch)
    launches = {case.shape: [_launches(case, each, artifact, made) for each in _numbers(case)] for case in cases}
    cubins = {path.name: base64.b64encode(path.read_bytes()).decode() for path in made.iterdir()}
    return {"shapes": launches, "cubins": cubins}


def _numbers(case: KernelCall) -> list[dict[str, Any]]:
    """The operator's numbers that only its inputs decide, of each kind of input that has others."""
    wanted = {a.name for a in case.arguments if a.kind != "tensor" and a.default is None and a.name not in case.params}
    if not wanted:
        return [{}]
    problem = load_problem(case.root, case.problem_file)
    kinds = all_kinds(problem) if case.library else problem.KINDS[:1]  # as recorded
    inputs = (problem.make_inputs(dict(case.params), 0, "cpu", kind) for kind in kinds)
    numbers = ({k: v for k, v in each.items() if k in wanted and isinstance(v, int | float)} for each in inputs)
    return [*{json.dumps(each): each for each in numbers}.values()]


def _launches(case: KernelCall, numbers: Mapping[str, Any], artifact: Artifact, folder: Path) -> dict[str, Any]:
    plan = cuda_source.planned(case, dict(numbers), artifact, folder) if case.library else planned.planned(case, folder)
    workspaces = {name: t.sizes[0] for name, t in plan.tensors.items() if t.role == "workspace"}
    return {"launches": plan.model_dump()["launches"], "workspaces": workspaces, "numbers": numbers}


if __name__ == "__main__":
    main()
