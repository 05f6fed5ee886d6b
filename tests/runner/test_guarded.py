"""Tensors between bands of poison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flashcore.runner.guarded import (
    GUARD_BYTES,
    GUARD_MOST,
    Guarded,
    Outputs,
    any_of,
    copied,
    guard_inputs,
    laid_out,
    write,
)
from tests.support.late import optional

torch = optional("torch")


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
    assert bands["x"].damage() == "" and not bands["x"].is_changed()
    assert copy["scale"] == 2.0
    assert torch.equal(copy["x"], x)
    guard = copy["x"].as_strided((GUARD_BYTES // 4,), (1,), copy["x"].storage_offset() + 6)
    assert guard.isnan().all()
    guard[-1] = 0
    assert "4 bytes written past its last element" in bands["x"].damage() and bands["x"].is_changed()
    bands["x"].write(x)
    assert not bands["x"].is_changed()
    copy["x"][1, 2] = 5
    assert bands["x"].is_changed()


def test_damage_is_told_by_its_byte_nearest_to_the_tensor() -> None:
    guard = Guarded((8,), "float32", "cpu")
    whole, start = torch.empty(0, dtype=torch.uint8).set_(guard.tensor.untyped_storage()), guard.tensor.storage_offset()
    for at in (4 * start + 32 + 6, 4 * start + 32 + 10):
        whole[at] = 1
    assert guard.damage() == "2 bytes written past its last element, the nearest 7 bytes away"
    for at in (4 * start - 5, 4 * start - 3):
        whole[at] = 1
    assert guard.damage() == "2 bytes written before its first element, the nearest 3 bytes away"
    guard.poison()
    assert guard.damage() == ""


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


VIEWS = {
    "rows": lambda x: x[:, :3],
    "transposed": lambda x: x.t(),
    "every other": lambda x: x[::2, 1::2],
    "expanded": lambda x: x[:1].expand(5, 8),
    "windows": lambda x: x.flatten().unfold(0, 4, 1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_a_view_lies_between_nan_as_it_lay(view: Callable[[Any], Any]) -> None:
    x = view(torch.randn(4, 8))
    copy, bands = guard_inputs({"x": x})
    assert torch.equal(copy["x"], x) and copy["x"].stride() == x.stride() and copy["x"].data_ptr() != x.data_ptr()
    assert bands["x"].damage() == "" and not bands["x"].unwritten().any()
    guarded_copy = copied(x)
    assert torch.equal(guarded_copy, x) and guarded_copy.stride() == x.stride()
    write(guarded_copy, copy["x"] * 2)
    assert torch.equal(guarded_copy, x * 2)
    copy["x"].as_strided((1,), (1,), copy["x"].storage_offset() - 1).fill_(0)
    assert "4 bytes written before its first element" in bands["x"].damage()


def test_a_write_between_the_rows_of_a_view_is_seen_and_a_read_is_nan() -> None:
    copy, bands = guard_inputs({"x": torch.zeros(4, 8)[:, :6]})
    between = copy["x"].as_strided((3, 2), (8, 1), copy["x"].storage_offset() + 6)
    assert between.isnan().all()
    between[1, 1] = 0
    assert bands["x"].damage() == "1 elements written in its gaps, the first 15 after its first element"


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8"])
def test_rows_apart_begin_on_16_bytes(dtype: str) -> None:
    x = torch.ones(2, 3, 5, dtype=getattr(torch, dtype))
    other = laid_out(x, "apart")
    assert torch.equal(other, x) and not other.is_contiguous() and other.stride(-1) == 1
    assert all(other[i, j].data_ptr() % 16 == 0 for i in range(2) for j in range(3))


def test_all_that_was_written_beside_tensors_is_named_at_once() -> None:
    outputs = Outputs(dict.fromkeys(("first", "second", "third"), ((5, 7), "float32")))
    guards = outputs.guards

    def damaged() -> list[str]:
        return any_of({name: guard.is_damaged() for name, guard in guards.items()})

    assert damaged() == [] == any_of({})
    arena = outputs["second"].untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8).set_(arena)
    whole[outputs["second"].storage_offset() * 4 - 3] = 0
    assert damaged() == ["second"]
    assert "1 bytes written before its first element, the nearest 3 bytes away" in guards["second"].damage()


def test_damage_between_the_elements_of_a_strided_tensor_is_seen() -> None:
    guard = Guarded((2, 3), "float32", "cpu", strides=(8, 1))
    guard.tensor.zero_()
    assert not guard.is_damaged() and guard.damage() == ""
    guard.tensor.as_strided((1,), (1,), guard.tensor.storage_offset() + 5).fill_(0)
    assert (
        guard.is_damaged() and guard.damage() == "1 elements written in its gaps, the first 5 after its first element"
    )
    guard.poison()
    assert not guard.is_damaged()
