"""A study's figures: the funnel adds up, reasons that differ in numbers are one, the winner's way only gets faster."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

from extensions.tune.tests.spaces import GRID, RECORDED, header
from flashcore_tune import summary
from flashcore_tune.study import Result
from flashcore_tune.summary import Summary


def study(results: Iterable[Result]) -> Summary:
    return Summary(header(), {r.index: r for r in results})


STUDY = study(RECORDED)


def test_the_funnel_adds_up() -> None:
    steps = STUDY.funnel
    assert [s.name for s in steps][:3] == ["all points", "meet the conditions", "looked at"]
    assert steps[0].left == len(GRID) and steps[1].rejected == len(GRID) - len(GRID.feasible)
    for before, after in itertools.pairwise(steps[2:]):
        assert before.left is not None and after.left == before.left - after.rejected
    assert steps[-1].left == len(STUDY.timed)
    static = study(map(Result, GRID.feasible)).funnel
    assert [s.left for s in static[-2:]] == [None] * 2


def test_reasons_that_differ_in_numbers_alone_are_one() -> None:
    texts = ["265,216 B; the most is 232,448", "274,432 B; the most is 232,448", "9,000 B; the most is 232,448"]
    log = "a.cuh(33): warning #179-D: odd\n  x\na.cuh(40): error: no such thing\nmore"
    reasons = [*texts, "other\nand more", log, ""]
    results = [Result(i, "static", text) for i, text in zip(GRID.feasible, reasons, strict=False)]
    step = study(results).funnel[-3]
    assert step.rejections[0] == (3, "265,216 B; the most is 232,448")
    assert set(step.rejections[1:]) == {(1, "other"), (1, "no such thing, at a.cuh(40)"), (1, "no reason was recorded")}


def test_evaluations_count_what_came_to_a_gpu() -> None:
    first, second = GRID.feasible[:2]
    results = [Result(first, "check", "wrong"), Result(second, times={"small": 2.0}), Result(30, "build", "no")]
    results += [Result(31, times={"small": 2.0}, twin=second), Result(32, times={"small": 1.0})]
    counted = study(results)
    assert [(one.evaluation, one.index) for one in counted.timed] == [(2, second), (2, 31), (3, 32)]
    assert [one.index for one in counted.improvements] == [second, 32] and counted.evaluations == 3


def test_the_fastest_with_each_value() -> None:
    best = min(one.us for one in STUDY.timed)
    rows = STUDY.axes().rows
    assert list(dict.fromkeys(row[0] for row in rows)) == list(GRID.space.axes)
    for axis in GRID.space.axes:
        of_axis = [row for row in rows if row[0] == axis]
        assert min(row[2] for row in of_axis) == best and sum(row[4] for row in of_axis) == len(STUDY.timed)
        for _, value, us, slower, _ in of_axis:
            assert us == min(one.us for one in STUDY.timed if GRID.point(one.index)[axis] == value)
            assert slower == round(100 * (us / best - 1), 1)


def test_a_genealogy_begins_somewhere_and_only_gets_faster() -> None:
    rng = random.Random(3)
    for _ in range(20):
        order = rng.sample(RECORDED, len(RECORDED))
        shuffled = study(order)
        path = shuffled.genealogy(shuffled.ranked[0].index)
        assert path[-1] is shuffled.ranked[0]
        times, places = [one.us for one in path], [shuffled.timed.index(one) for one in path]
        assert times == sorted(times, reverse=True) and places == sorted(places)
        assert not [one for one in shuffled.timed[: places[0]] if one.us > path[0].us], "none slower came before"


def test_a_parent_is_the_nearest_slower_one() -> None:
    near, far, winner = (GRID.index({"ROWS": r, "STAGES": s, "COPY": c})
                         for r, s, c in ((32, 2, "async"), (16, 1, "plain"), (64, 2, "async")))  # fmt: skip
    timed = study(Result(i, times={"small": us}) for i, us in ((far, 3.0), (near, 4.0), (winner, 1.0)))
    assert [one.index for one in timed.genealogy(winner)] == [near, winner]
    assert timed.change(near, winner) == "ROWS 32 to 64"


def test_what_was_broken_is_said_with_by_how_much() -> None:
    assert summary.broken(Result(1)) == "none"
    assert summary.broken(Result(1, broken={"registers": 0.82, "spills": 2076.0})) == "registers by 82 %, spills"


def test_who_was_faster_than_the_first_that_keeps_every_budget() -> None:
    first, second, third, *_ = GRID.feasible
    us = {first: 1.0, second: 2.0, third: 3.0}

    def within(*broken: int) -> tuple[list[int], int | None]:
        results = (Result(i, times={"small": t}, broken={"spills": 1.0} if i in broken else {}) for i, t in us.items())
        faster, kept = study(results).within_budgets()
        return [one.index for one in faster], kept.index if kept else None

    assert within() == ([], first) and within(first, second) == ([first, second], third)
    assert within(second) == ([], first) and within(*us) == ([first, second, third], None)
