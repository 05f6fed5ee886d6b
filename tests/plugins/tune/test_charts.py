"""A study's picture places each candidate where its figures say."""

from __future__ import annotations

import re

import pytest

from flashcore.plugins.tune import charts
from flashcore.plugins.tune.study import Result
from flashcore.plugins.tune.summary import Summary
from tests.plugins.tune.spaces import GRID, header

A, B, C = GRID.feasible[:3]
#: Point → µs: the second is worse, the third the best.
TIMES = {A: 4.0, B: 8.0, C: 2.0}


def study(floor: float | None = None) -> Summary:
    return Summary(header(floor=floor), {i: Result(i, times={"small": us}) for i, us in TIMES.items()})


def dots(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle[^>]* cx="([\d.]+)" cy="([\d.]+)"', svg)]


def test_times_are_placed_by_evaluation_and_logarithm_with_the_best_as_steps() -> None:
    drawing = charts.history(study())
    (x1, y1), (x2, y2), (x3, y3) = dots(drawing.svg)
    assert (x1, x3) == (52, 346) and x2 == (x1 + x3) / 2
    assert y2 < y1 < y3 and y1 == pytest.approx((y2 + y3) / 2, abs=0.1), "in a logarithm 4 lies between 2 and 8"
    assert (y3, y2) == (187.5, 18.5)
    assert f'<path class="best" d="M{x1} {y1}H{x3}V{y3}H{x3}"/>' in drawing.svg
    assert drawing.table[1:] == [[1, 4.0, 4.0, A], [2, 8.0, 4.0, B], [3, 2.0, 2.0, C]]
    assert re.findall(r'class="end">([\d.]+)<', drawing.svg) == ["2.000", "8.000"]
    assert ">1</text>" in drawing.svg and ">3</text>" in drawing.svg
    assert f"point {B}: 8.000 µs; {GRID.text(B)}" in drawing.svg


@pytest.mark.parametrize(("floor", "drawn"), [(None, False), (1.0, True), (0.5, False)])
def test_a_floor_is_drawn_where_it_is_near(floor: float | None, drawn: bool) -> None:
    svg = charts.history(study(floor)).svg
    assert ('class="floor"' in svg) is drawn and ("floor 1" in svg) is drawn
    lowest = max(y for _, y in dots(svg))
    assert (lowest < 187.5) is drawn


def test_a_single_candidate_has_a_picture() -> None:
    one = Summary(header(), {A: Result(A, times={"small": 4.0})})
    assert len(dots(charts.history(one).svg)) == 1
