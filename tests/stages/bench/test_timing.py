"""How calls are put into samples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flashcore.stages.bench.timing import SAMPLE_US, calls_for, rotated


def test_calls_of_a_sample() -> None:
    assert calls_for(1e6) == 1
    assert calls_for(SAMPLE_US / 40) == 40
    assert calls_for(0.0) == calls_for(1e-9) > 100


@given(st.lists(st.text(max_size=2), max_size=6, unique=True), st.integers(0, 50))
def test_rotation_keeps_everyone(items: list[str], turn: int) -> None:
    found = rotated(items, turn)
    assert sorted(found) == sorted(items)
    assert not items or found[0] == items[turn % len(items)]
