"""A study's pictures place each candidate where its figures say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flashcore.plugins.tune import charts
from flashcore.plugins.tune.study import Result
from flashcore.plugins.tune.summary import Summary
from tests.plugins.tune.spaces import GRID, SPACE, header

A, B, C = GRID.feasible[:3]
#: Point → µs: the second is worse, the third the best.
TIMES = {A: 4.0, B: 8.0, C: 2.0}


def study(floor: float | None = None, **space: object) -> Summary:
    results = {
        i: Result(i, times={"small": us}, facts={"smem": smem})
        for (i, us), smem in zip(TIMES.items(), (10.0, 30.0, 20.0), strict=True)
    }
    return Summary(header(floor=floor, space=replace(SPACE, **space)), results)  # type: ignore[arg-type]


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
    assert re.findall(r'class="end">([\d.]+)<', drawing.svg) == ["2.000", "5.000"]
    assert ">1</text>" in drawing.svg and ">3</text>" in drawing.svg
    assert f"point {B}: 8.000 µs; {GRID.text(B)}" in drawing.svg


@pytest.mark.parametrize(
    ("floor", "drawn", "words"), [(None, False, ""), (1.0, True, "floor 1"), (0.5, False, "the floor, 0.5")]
)
def test_a_floor_is_drawn_where_it_is_near(floor: float | None, drawn: bool, words: str) -> None:
    svg = charts.history(study(floor)).svg
    assert ('class="floor"' in svg) is drawn and words in svg and ("far below" in svg) is (floor == 0.5)
    lowest = max(y for _, y in dots(svg))
    assert (lowest < 187.5) is drawn


def test_a_single_candidate_has_a_picture() -> None:
    one = Summary(header(), {A: Result(A, times={"small": 4.0})})
    assert len(dots(charts.history(one).svg)) == 1


def test_a_front_joins_what_no_other_dominates() -> None:
    both = study(objectives=("time", "smem"))
    drawing = charts.front(both, both.objective_names)
    assert both.front == [C, A]
    assert drawing.table == [
        ["point", "time:small", "smem", "on the front"],
        [A, 4.0, 10.0, True], [B, 8.0, 30.0, False], [C, 2.0, 20.0, True],
    ]  # fmt: skip
    (bx, by), (ax, ay), (cx, cy) = dots(drawing.svg)
    assert (cx, bx) == (52, 346) and cx < ax < bx and (ay, by) == (187.5, 18.5) and by < cy < ay
    assert f'd="M{cx} {cy} L{ax} {ay}"' in drawing.svg and drawing.svg.count('class="top"') == 2
    assert "smem (up) over time:small (right)" in drawing.svg
