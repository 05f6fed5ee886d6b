"""Introspection: the machine's answer becomes the header, and an answer that cannot be is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import Exit, FlashcoreError
from flashcore.model.suite import Argument
from flashcore.stages import introspect
from flashcore.worker.kernel_call import Case
from tests.conftest import ROOT, flashcore

FRAGMENT = ROOT / "kernels/attention/fragment.py"


@pytest.fixture
def fragment(tmp_path: Path) -> Any:
    """The problem, with a copy of the committed header."""
    spec = importlib.util.spec_from_file_location("fragment_problem", FRAGMENT)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.HEADER.read_text(encoding="utf-8")
    module.HEADER = tmp_path / "fragment_table.cuh"
    module.HEADER.write_text(text, encoding="utf-8")
    module.committed.__defaults__ = (module.HEADER,)
    return module


def answer(table: list[list[tuple[int, int]]]) -> dict[str, Any]:
    """What a machine with that table answers."""
    owner = [[-1] * 16 for _ in range(16)]
    for lane, slots in enumerate(table):
        for slot, (row, col) in enumerate(slots):
            owner[row][col] = lane * 8 + slot
    return {"table": [[list(cell) for cell in slots] for slots in table], "owner": owner}


def test_a_machine_that_answers_as_committed_changes_nothing(fragment: Any) -> None:
    table, (machine, *_) = fragment.committed()
    path, text, news = fragment.rewritten(answer(table), machine)
    assert path == fragment.HEADER
    assert text == path.read_text(encoding="utf-8")
    assert news == []


def test_another_machine_with_the_same_table_is_added(fragment: Any) -> None:
    table, machines = fragment.committed()
    path, text, news = fragment.rewritten(answer(table), 121)
    assert news == ["the table holds on 121 too"]
    path.write_text(text, encoding="utf-8")
    assert fragment.committed() == (table, [*machines, 121])


def test_another_table_is_that_machines_alone(fragment: Any) -> None:
    table, _ = fragment.committed()
    other = [*table[4:8], *table[:4], *table[8:]]  # two groups of lanes, the one in the other's place
    path, text, news = fragment.rewritten(answer(other), 121)
    assert news == ["64 of 256 slots differ from the table found on 90"]
    path.write_text(text, encoding="utf-8")
    assert fragment.committed() == (other, [121])


def test_without_a_table_one_is_written(fragment: Any) -> None:
    table, _ = fragment.committed()
    fragment.HEADER.unlink()
    _, text, news = fragment.rewritten(answer(table), 90)
    assert news == ["there was no table"] and "kFragmentFoundOn[] = {90}" in text


def test_answers_that_contradict_themselves_are_refused(fragment: Any) -> None:
    table, _ = fragment.committed()
    twice = [[table[0][0], *table[0][1:]], [table[0][0], *table[1][1:]], *table[2:]]
    with pytest.raises(ValueError, match="coverage"):
        fragment.rewritten({**answer(table), "table": twice}, 90)
    crossed = answer(table)
    crossed["owner"][0][0], crossed["owner"][0][1] = crossed["owner"][0][1], crossed["owner"][0][0]
    with pytest.raises(ValueError, match="stores it"):
        fragment.rewritten(crossed, 90)


PROBLEM = """
from pathlib import Path
HERE = Path(__file__).parent
def make_inputs(params, seed, device, kind="normal"):
    import torch
    return {"x": torch.arange(params["N"], dtype=torch.float32, device=device)}
def reference(inputs, params): ...
def emulate(tolerance, inputs, params): ...
def work(params): ...
KINDS, TOLERANCES, FENCE = ("normal",), {"exact": ""}, {"max": 0.0, "mean": 0.0}
def rewritten(answer, capability):
    if answer["out"][0] != 0:
        raise ValueError("it must begin at 0")
    return HERE / "found.h", f"{capability}: {answer['out']}", ["it is new"]
"""
PEERS = (
    "def double(x):\n    return 2 * x\ndef crooked(x):\n    return x + 1\ndef broken(x):\n    raise ValueError('no')\n"
)


def ask(folder: Path, function: str) -> list[introspect.Answer]:
    (folder / "problem.py").write_text(PROBLEM, encoding="utf-8")
    (folder / "peers.py").write_text(PEERS, encoding="utf-8")
    arguments = (
        Argument("x", "tensor", False, ("N",), "float32"),
        Argument("out", "tensor", True, ("N",), "float32"),
    )
    case = Case(
        variant="asker", shape="three", suite="toy", root=str(folder), problem_file="problem.py", params={"N": 3},
        arguments=arguments, library=None, callable=f"peers.py:{function}", tolerance="exact", seeds=(0,), roof="fp32",
    )  # fmt: skip
    return introspect.run([case], folder / "work", (9, 0), device="cpu")


def test_the_child_asks_and_its_answer_comes_back(tmp_path: Path) -> None:
    (found,) = ask(tmp_path, "double")
    assert (found.case, found.path) == ("asker/three", tmp_path / "found.h")
    assert found.text == "90: [0.0, 2.0, 4.0]" and found.news == ("it is new",)


@pytest.mark.parametrize(("function", "reason"), [("crooked", "must begin at 0"), ("broken", "ValueError: no")])
def test_no_answer_is_an_error_that_says_why(tmp_path: Path, function: str, reason: str) -> None:
    with pytest.raises(FlashcoreError, match=reason):
        ask(tmp_path, function)


def test_the_command_needs_a_gpu_and_a_question(tmp_path: Path) -> None:
    no_gpu = "from flashcore.machine.gpu import Gpu; Gpu.find = lambda: None"
    done = flashcore("introspect", "--suite", str(ROOT / "kernels/attention"), cwd=tmp_path, start=no_gpu)
    assert done.returncode == Exit.INCAPABLE and "no GPU" in done.stderr
    done = flashcore("introspect", "--suite", str(ROOT / "kernels/roofs"), cwd=tmp_path, start=no_gpu)
    assert done.returncode == Exit.USAGE and "rewritten" in done.stderr
