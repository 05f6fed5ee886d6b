"""The process that ncu starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import KernelCall, Reference
from flashcore.stages.profile import child

PROBLEM = """
KINDS = ("normal",)
TOLERANCES = {}
FENCE = {}
CALLS = []

def make_inputs(params, seed, device, kind="normal"):
    CALLS.append(("inputs", seed, str(device)))
    return {"n": params["S"]}

def reference(inputs, params): ...
def emulate(tolerance, inputs, params): ...
def work(params): return {}
"""


def test_the_target_calls_once_to_warm_up_and_once_in_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "peers.py").write_text("import problem\ndef reference(n):\n    LOG.append(('call', n))\nLOG = []\n")
    import nvtx

    log: list[object] = []

    class Range:
        def __init__(self, name: str, domain: str) -> None:
            log.append(("open", name, domain))

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            log.append("close")

    monkeypatch.setattr(nvtx, "annotate", Range)
    (tmp_path / "peers.py").write_text("def reference(n):\n    reference.log.append(n)\n    return (n,)\n")
    toy = KernelCall(
        variant="p", shape="s", suite="toy", root=str(tmp_path), problem_file="problem.py", params={"S": 8},
        arguments=(), target=Reference("peers.py:reference"), tolerance="exact", seeds=(0,), flop=None,
    )  # fmt: skip
    from flashcore.runner.problem_file import load_file, load_problem

    load_file(str(tmp_path.resolve() / "peers.py")).reference.log = log
    child.prepare()
    child.perform(Task("p/s", {"case": toy.to_json(), "device": "cpu"}), Journal(tmp_path / "j.jsonl"))
    assert log == [8, ("open", "p/s", "flashcore"), 8, "close"]
    steps = [json.loads(line).get("step") for line in (tmp_path / "j.jsonl").read_text().splitlines()]
    assert steps == [None, ["warm-up", ""], ["profiled call", ""]]
    # The next variant of the shape gets the same inputs.
    child.perform(Task("p/s", {"case": toy.to_json(), "device": "cpu"}), Journal(tmp_path / "k.jsonl"))
    assert len(load_problem(tmp_path, "problem.py").CALLS) == 1
