"""Each call of a sample must write all of its outputs: bytes at random places show those that did not."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from flashcore.stages.bench.looks import PLACES, Looks

torch = pytest.importorskip("torch")
EACH = PLACES // 3


def look(places: int, seen: int, count: int) -> None:
    """As a spacer on the GPU."""
    for i in range(count):
        byte = ctypes.c_uint8.from_address(ctypes.c_uint64.from_address(places + 8 * i).value)
        ctypes.c_uint8.from_address(seen + i).value = byte.value
        byte.value = 0xFF


def sample(looks: Looks, outputs: list[list[Any]], calls: int, lazy: set[int], half: bool = False) -> None:
    """Calls that write 1, on two sets of outputs in turns; the lazy ones do not, or only every second half."""
    at = looks.at("isolated", calls)
    for call in range(calls):
        if call:
            look(*at(call - 1))
        for tensor in outputs[call % len(outputs)]:
            middle = len(tensor) // 2
            if half:
                tensor[slice(middle, None) if call // len(outputs) % 2 else slice(middle)] = 1
            elif call not in lazy:
                tensor[:] = 1


@pytest.fixture
def outputs() -> list[list[Any]]:
    return [[torch.ones(3000, 2, dtype=torch.float16), torch.ones(5), torch.ones(700, dtype=torch.int64)] for _ in "ab"]


def test_what_all_calls_wrote_is_restored(outputs: list[list[Any]]) -> None:
    looks = Looks(outputs)
    for _ in range(3):
        sample(looks, outputs, 7, lazy=set())
        assert not all(bool((one == 1).all()) for one in outputs[1]), "poisoned"
        for i in (0, 1):
            looks.restore(i, "isolated", 7)
            assert all(bool((one == 1).all()) for one in outputs[i])
        looks.draw()


@pytest.mark.parametrize(("lazy", "half"), [({4}, False), ({0, 2, 4}, False), (set(), True)])
def test_a_call_that_does_not_write_is_seen_whichever_it_is(
    outputs: list[list[Any]], lazy: set[int], half: bool
) -> None:
    looks = Looks(outputs)
    sample(looks, outputs, 8, set(), False)
    sample(looks, outputs, 8, lazy, half)
    for i in (0, 1):
        looks.restore(i, "isolated", 8)
        wrong = [int((one != 1).sum()) for one in outputs[i]]
        share = len([call for call in lazy if call % 2 == i]) / 4 if not half else 0.5
        assert (wrong[0] > 0) is (share > 0) and wrong[0] <= EACH, wrong
        if share:
            assert 0.4 * share < wrong[0] / EACH < 1.6 * share
        assert int((outputs[i][0][wrong[0] and 0 :].isnan()).sum()) == wrong[0], "a poisoned fp16 is a NaN"


def test_places_cover_a_tensor_and_change(outputs: list[list[Any]]) -> None:
    looks = Looks(outputs)
    first = looks._offsets
    looks.draw()
    parts = looks._offsets
    assert not torch.equal(first[0], parts[0]) and list(map(len, parts)) == [EACH, 5, EACH]
    assert sorted(parts[1].tolist()) == [3, 7, 11, 15, 19], "each element's last byte"
    for part, size, one in zip(parts, (2, 4, 8), outputs[0], strict=True):
        assert len({*part.tolist()}) == len(part) and bool((part % size == size - 1).all())
        assert int(part.max()) < one.numel() * size
