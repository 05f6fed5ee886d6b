"""The benchmark of figures: what it reads as one figure, and what it calls a difference."""

from __future__ import annotations

import json

import pytest

from benchmarks import figures

SENTENCE = (
    "4.658 µs isolated, 1.546 × faster than its parent fast [1.543, 1.550], 5.87 × its floor of 0.794 µs (launch)."
)
PAGE = f'<div class="byshape" data-shape="mission"><p class="answer" data-is="answer">{SENTENCE}</p>'


def brief(**time: object) -> str:
    known = {"mode": "isolated", "us": 4.658, "floor": {"us": 0.794, "ratio": 5.867}, "over": {}}
    return json.dumps({"time": known | time, "limiter": {}})


def differences(page: str, data: str) -> tuple[list[str], int]:
    outputs = {("run", "variant page", "fast"): page, ("run", "brief", "fast/mission"): data}
    shown = {place: [*figures.READERS[place[1]](text, place[2])] for place, text in outputs.items()}
    found, pairs, _ = figures.compared(shown)
    return found, pairs


def test_figures_that_round_alike_are_one() -> None:
    found, pairs = differences(PAGE, brief(over={"parent": ["fast", "1.546 × faster [1.543, 1.550]"]}))
    assert (found, pairs) == ([], 4)


@pytest.mark.parametrize(
    "other", [{"us": 4.66}, {"floor": {"us": 0.8, "ratio": 5.867}}, {"over": {"parent": ["fast", "1.547 × faster"]}}]
)
def test_another_last_digit_is_a_difference(other: dict[str, object]) -> None:
    found, _ = differences(PAGE, brief(**other))
    assert len(found) == 1 and "fast/mission" in found[0]
