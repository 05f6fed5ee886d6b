"""The child of sanitize."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.model.suite import Argument
from flashcore.runner import kernel_call
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.stages.sanitize import child


def test_the_child_calls_a_case_with_outputs_of_just_their_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    seen: list[torch.Tensor] = []
    (tmp_path / "problem.py").write_text(
        "import torch\ndef make_inputs(params, seed, device, kind='normal'): return {'x': torch.ones(params['N'])}\n"
        "def reference(inputs, params): ...\ndef emulate(tolerance, inputs, params): ...\ndef work(params): ...\n"
        "KINDS, TOLERANCES, FENCE = ('normal',), {'exact': ''}, {'max': 0.0, 'mean': 0.0}\n"
    )
    monkeypatch.setattr(kernel_call, "operator", lambda *_: lambda x, out: seen.append(out))
    arguments = (Argument("x", "tensor", False, ("N",), "float32"), Argument("out", "tensor", True, ("N",), "float16"))
    made = KernelCall(
        variant="v", shape="s", suite="toy", root=str(tmp_path), problem_file="problem.py", params={"N": 5},
        arguments=arguments, target=Operator("none.so"), tolerance="exact", seeds=(0,), flop=None,
    )  # fmt: skip
    child.perform(Task("v/s", {"case": made.to_json(), "device": "cpu"}), Journal(tmp_path / "journal.jsonl"))
    (out,) = seen
    assert (out.dtype, out.numel()) == (torch.float16, 5)
    assert out.untyped_storage().nbytes() == 10, "no band around it in which a write beside it would be lost"
