"""The generated binding: an operator that torch loads, and that knows its schema."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from flashcore.build import binding
from flashcore.machine import python_process
from flashcore.model.suite import Argument, Problem
from flashcore.runner.kernel_call import KernelCall, Operator
from tests import forks
from tests.conftest import ROOT, TOY, Built

CHILD = """
import json, os, sys, torch
from flashcore.runner.kernel_call import Caller, KernelCall
from flashcore.runner.problem_file import load_problem
from torch._subclasses.fake_tensor import FakeTensorMode
case, copy = KernelCall.from_json(json.loads(sys.argv[1])), sys.argv[2]
for library, suffix in ((case.library, ""), (copy, "_b1f2")):
    os.environ["FLASHCORE_OP_SUFFIX"] = suffix
    torch.ops.load_library(library)
    op = getattr(torch.ops.flashcore_toy, "two_steps" + suffix)
    print(op.default._schema)
    try:
        op(torch.ones(8), torch.zeros(8), 2.0)
    except NotImplementedError as error:
        print("refused:", str(error).splitlines()[0])
os.environ["FLASHCORE_OP_SUFFIX"] = ""
Caller(case, load_problem(case.root, case.problem_file))
op = torch.ops.flashcore_toy.two_steps
with FakeTensorMode():
    x, out = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    print(op(x, out, 2.0))
"""


def with_torch(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process that has imported torch: to import it takes longer than all the rest."""
    environment = {**python_process.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    return forks.of(forks.KERNELS).run(["-c", code, *words], ROOT, environment, timeout=300)


@pytest.fixture(scope="module")
def printed(toy: Built, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of a process that loads the operator, then a renamed copy of it, and calls both."""
    problem = toy.suite.problems["scale"]
    library = toy.of("two_steps").library
    assert library is not None
    case = KernelCall(
        variant="two_steps", shape="tail", suite="toy", root=str(TOY), problem_file=problem.file, params={"N": 8},
        arguments=problem.arguments, target=Operator(library), tolerance="rounded_once", seeds=(0,), flop=None,
    )  # fmt: skip
    copy = shutil.copy(library, tmp_path_factory.mktemp("copy") / "operator.so")
    done = with_torch(CHILD, json.dumps(case.to_json()), str(copy))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5, lines
    return lines


@pytest.mark.parametrize(("name", "at"), [("two_steps", 0), ("two_steps_b1f2", 2)])
def test_the_operator_loads_without_a_gpu_and_refuses_cpu_tensors(printed: list[str], name: str, at: int) -> None:
    schema, refusal = printed[at : at + 2]
    assert schema == f"flashcore_toy::{name}(Tensor x, Tensor(a!) out, float factor) -> ()"
    assert refusal.startswith("refused: Could not run") and "'CPU' backend" in refusal


def test_no_symbol_of_torch_may_stay_unresolved(toy: Built) -> None:
    """A weak one that is in none of the libraries that an operator names is null, on a GPU too, and nothing says so."""
    library = toy.of("two_steps").library
    assert library is not None
    listed = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    symbols = [line.split() for line in listed.stdout.splitlines()]
    assert any(name.startswith("aoti_torch_") for *_, name in symbols)
    assert not [name for kind, name in symbols if kind.lower() in "vw" and name.startswith("aoti_torch_")]


def test_the_operator_has_a_fake_kernel(printed: list[str]) -> None:
    assert printed[4] == "None"


ABSENT = """
import sys, torch
from flashcore.runner.kernel_call import operator
op = operator("update", "plain", sys.argv[1])
print(op._schema)
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    a, b, c = (torch.empty(4, 4, device="cuda") for _ in range(3))
    print(op(a, b, c, None, 1.0, 2.0), op(a, b, c, torch.empty(4, device="cuda"), 1.0, 2.0))
"""


def test_torch_takes_a_tensor_that_is_absent_and_one_that_is_written_in_place(update: Built) -> None:
    library = update.of("plain").library
    assert library is not None
    done = with_torch(ABSENT, library)
    schema = "(Tensor a, Tensor b, Tensor(a!) c, Tensor? bias, float alpha, float beta) -> ()"
    assert done.stdout.splitlines() == [f"flashcore_update::plain{schema}", "None None"], done.stderr


def test_a_launcher_gets_strides_and_null_for_what_is_absent() -> None:
    arguments = (
        Argument("x", "tensor", False, ("R", "C"), "float32", strides="rows"),
        Argument("c", "tensor", True, ("R", "C"), "float32", inout=True, strides="any"),
        Argument("workspace", "tensor", False, ("C/2",), "float32", optional=True, strides="any"),  # as in `call`
    )
    problem = Problem("p", "p.py", "", arguments, ("R", "C"), (0,))
    assert binding.arguments_header(problem).splitlines()[5:-1] == [
        "  const void* x;", "  std::int64_t x_strides[2];", "  void* c;", "  std::int64_t c_strides[2];",
        "  const void* workspace;", "  std::int64_t workspace_strides[1];",
    ]  # fmt: skip
    text = binding.binding_source("s", problem)
    assert "void call(Tensor x_, Tensor c_, std::optional<Tensor> workspace_)" in text
    assert "{0, 1}, 'r', false}, dims, x_);" in text and "{0, 1}, 'a', true}, dims, x_);" in text
    assert "if (workspace_) check(*workspace_, " in text
    assert "STD_TORCH_CHECK((dims[2] < 0 || dims[2] == dims[1]/2), " in text  # nobody told it
    assert "(workspace_ ? workspace_->const_data_ptr() : nullptr), {(workspace_ ? workspace_->stride(0) : 0)}}" in text
    plain = binding.binding_source("s", Problem("p", "p.py", "", (arguments[0], arguments[1]), ("R", "C"), (0,)))
    assert "std::optional" not in plain


def test_dimensions_that_follow_from_others_are_held_to_them() -> None:
    sizes = {"x": ("R", "C"), "table": ("16",), "out": ("R", "C/2"), "count": ("R+1",)}
    arguments = [Argument(name, "tensor", name == "out", dims, "float32") for name, dims in sizes.items()]
    problem = Problem("p", "p.py", "", (*arguments, Argument("flag", "bool", default=True)), ("R", "C"), (0,))
    text = binding.binding_source("s", problem)
    assert "constexpr int kRank = 5;" in text
    for check in ("dims[2] == 16", "dims[3] == dims[1]/2", "dims[4] == dims[0]+1"):
        assert f"STD_TORCH_CHECK({check}, " in text
    assert "int64_t R, C;" in binding.problem_header(problem)  # a launcher knows C/2 itself
    assert "  bool flag;" in binding.arguments_header(problem)
    shape = {"R": 3, "C": 8}
    assert [a.sizes(shape) for a in arguments] == [(3, 8), (16,), (3, 4), (4,)]
    with pytest.raises(ValueError, match="not a multiple of 2"):
        arguments[2].sizes({"R": 3, "C": 7})
