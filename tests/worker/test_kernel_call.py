"""One call of a kernel: the case it is told, and the guards about its tensors."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from flashcore.errors import UsageError
from flashcore.worker.kernel_call import (
    GUARD_BYTES,
    GUARD_MOST,
    Case,
    Guarded,
    Outputs,
    guard_inputs,
    load_problem,
    work_of,
)
from tests.softmax_cases import case


def test_case_survives_json() -> None:
    one = case("right")
    assert Case.from_json(one.to_json()) == one


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_poison_is_nan_of_every_type(dtype: str) -> None:
    guard = Guarded((3, 5), dtype, "cpu")
    assert guard.tensor.double().isnan().all()
    assert guard.unwritten().all()
    assert guard.tensor.data_ptr() % 16 == 0
    assert guard.damage() == ""
    guard.tensor.zero_()
    assert not guard.unwritten().any()


def test_inputs_lie_between_nan() -> None:
    x = torch.ones(2, 3)
    copy, bands = guard_inputs({"x": x, "scale": 2.0})
    assert bands["x"].damage() == ""
    assert copy["scale"] == 2.0
    assert torch.equal(copy["x"], x)
    beside = copy["x"].as_strided((GUARD_BYTES // 4,), (1,), copy["x"].storage_offset() + 6)
    assert beside.isnan().all()
    beside[-1] = 0
    assert "4 bytes written past its last element" in bands["x"].damage()


@pytest.mark.parametrize("rows", [1, 512, 4096])
@pytest.mark.parametrize("beyond", [16 << 10, -(16 << 10)])
def test_a_fault_16_kb_off_is_seen_at_every_shape(rows: int, beyond: int) -> None:
    outputs = Outputs({"out": ((rows, 64), "float16"), "sums": ((rows,), "float32")})
    for name, other in (("out", "sums"), ("sums", "out")):
        outputs.poison()
        tensor = outputs[name]
        last = tensor.numel() - 1 if beyond > 0 else 0
        at = tensor.storage_offset() + last + beyond // tensor.element_size()
        tensor.as_strided((1,), (1,), at).fill_(1)
        where = "past its last" if beyond > 0 else "before its first"
        assert f"bytes written {where} element" in outputs.guards[name].damage()
        assert outputs.guards[other].damage() == ""


def test_bands_grow_with_the_tensor_up_to_a_bound_and_leave_no_gap_between_outputs() -> None:
    assert Guarded.bytes_of((1 << 20,), "float16") == 3 << 21
    assert Guarded.bytes_of((1 << 25,), "float16") == (1 << 26) + 2 * GUARD_MOST
    outputs = Outputs({"a": ((5, 7), "float16"), "b": ((3,), "float32")}, fill=0)
    whole = torch.empty(0, dtype=torch.uint8).set_(outputs["a"].untyped_storage())
    for at in range(0, whole.numel(), 997):
        outputs.poison()
        whole[at] = 1
        inside = any(bool(tensor.view(torch.uint8).any()) for tensor in outputs.values())
        assert inside != any(guard.damage() for guard in outputs.guards.values())


def test_a_problem_that_lacks_parts(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text("KINDS = ()\ndef work(params): return {}\n")
    with pytest.raises(UsageError, match="found no make_inputs, reference, emulate, TOLERANCES, FENCE"):
        load_problem(tmp_path, "problem.py")
    with pytest.raises(UsageError, match="expected a Python file"):
        load_problem(tmp_path, "other.py")


def test_work_may_differ_by_the_variants_roof() -> None:
    plain, by_roof = ModuleType("plain"), ModuleType("by_roof")
    plain.work = lambda params: {"flop": params["N"]}  # type: ignore[attr-defined]
    by_roof.work = lambda params, roof: {"tensor_flop" if roof.endswith("_tensor") else "fp32_flop": params["N"]}  # type: ignore[attr-defined]
    assert work_of(plain, {"N": 3}, "tf32_tensor") == {"flop": 3}
    plain.work = lambda params, scale=2: {"flop": params["N"] * scale}  # type: ignore[attr-defined]
    assert work_of(plain, {"N": 3}, "tf32_tensor") == {"flop": 6}, "what it does not ask for it is not given"
    assert work_of(by_roof, {"N": 3}, "tf32_tensor") == {"tensor_flop": 3}
    assert work_of(by_roof, {"N": 3}, "fp32") == {"fp32_flop": 3}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 1e308, 10**400, "12", None, [1]])
def test_work_that_is_no_amount_is_refused(value: object) -> None:
    odd = ModuleType("odd")
    odd.work = lambda params: {"bytes": 8, "flop": value}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"odd: work\(\) gives 'flop': expected a number of 0 to 1e30, found"):
        work_of(odd, {}, "fp32")
