"""The buffer of a marked kernel as warps."""

from __future__ import annotations

import pytest

from flashcore.errors import FlashcoreError
from flashcore.plugins.phases import buffer
from tests.plugins.phases.dumps import EVENTS, Entry, code, dump


def test_the_size_is_that_of_the_buffer() -> None:
    assert buffer.size(2, EVENTS) == len(dump(blocks=2))


@pytest.mark.parametrize("name", ["a", "z9_", "wait_values", "_0123456789z", "zzzzzzzzzzzz", "____________"])
def test_a_name_is_read_from_its_number(name: str) -> None:
    assert code(name) < 2**64 and buffer.name_of(code(name)) == name


def test_warps_have_their_block_role_and_phases() -> None:
    entries = [
        Entry(0, "producer", 1000, 9000, [(1100, "load"), (2000, "wait")]),
        Entry(31, "consumer", 1000, 9000, [], block=70, slot=1, sm=5),
    ]
    one, other = buffer.parse(dump(*entries), EVENTS)
    assert (one.block, one.sm, one.number, one.role, one.dropped) == (0, 0, 0, "producer", 0)
    assert one.events == ((10**12 + 1100, "load"), (10**12 + 2000, "wait"))
    assert (one.begin[0], one.end[0]) == (10**12 + 1000, 10**12 + 9000)
    assert (other.block, other.sm, other.number, other.role, other.events) == (70, 5, 31, "consumer", ())


def test_phases_without_a_place_are_counted() -> None:
    phases = [(1000 + i, f"phase{i}") for i in range(EVENTS + 3)]
    (warp,) = buffer.parse(dump(Entry(0, "all", 1000, 9000, phases)), EVENTS)
    assert [name for _, name in warp.events] == [f"phase{i}" for i in range(EVENTS)]
    assert warp.dropped == 3


@pytest.mark.parametrize("scopes", [0, 2])
def test_a_role_must_have_ended_once(scopes: int) -> None:
    with pytest.raises(FlashcoreError, match=rf"warp 3 of block 70: expected one FLASHCORE_ROLE .* found {scopes}"):
        buffer.parse(dump(Entry(3, "all", 0, 1, [], block=70, scopes=scopes)), EVENTS)
