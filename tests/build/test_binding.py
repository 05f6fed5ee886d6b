"""The generated binding: an operator that torch loads, and that knows its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, TOY, Built

LOAD = """
import sys, torch
torch.ops.load_library(sys.argv[1])
op = torch.ops.flashcore_toy.{name}
x, out = torch.ones(8), torch.zeros(8)
print(op.default._schema)
try:
    op(x, out, 2.0)
except NotImplementedError as error:
    print("refused:", str(error).splitlines()[0])
"""


@pytest.mark.parametrize(("suffix", "name"), [("", "two_steps"), ("_b1f2", "two_steps_b1f2")])
def test_the_operator_loads_without_a_gpu_and_refuses_cpu_tensors(toy: Built, suffix: str, name: str) -> None:
    library = toy.of("two_steps").library
    assert library is not None
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD.format(name=name), library],
        env={**os.environ, "FLASHCORE_OP_SUFFIX": suffix}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    schema, refusal = done.stdout.splitlines()
    assert schema == f"flashcore_toy::{name}(Tensor x, Tensor(a!) out, float factor) -> ()"
    assert refusal.startswith("refused: Could not run") and "'CPU' backend" in refusal


FAKE = """
import json, sys, torch
from flashcore.worker.kernel_call import Caller, Case, load_problem
from torch._subclasses.fake_tensor import FakeTensorMode
case = Case.from_json(json.loads(sys.argv[1]))
Caller(case, load_problem(case.root, case.problem_file))
op = torch.ops.flashcore_toy.two_steps
with FakeTensorMode():
    x, out = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    print(op(x, out, 2.0))
"""


def test_the_operator_has_a_fake_kernel(toy: Built) -> None:
    from flashcore.worker.kernel_call import Case

    problem = toy.suite.problems["scale"]
    library = toy.of("two_steps").library
    case = Case(
        variant="two_steps", shape="tail", suite="toy", root=str(TOY), problem_file=problem.file, params={"N": 8},
        arguments=problem.arguments, library=library, callable=None, tolerance="rounded_once", seeds=(0,), roof="fp32",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FAKE, json.dumps(case.to_json())],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
