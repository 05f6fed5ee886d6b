"""Every task goes to one slot; heavy shapes first, by fair shares."""

from __future__ import annotations

import pytest

from flashcore.measure.workers.journal import Task
from flashcore.measure.workers.process import LocalGpu
from flashcore.measure.workers.program import Program
from flashcore.measure.workers.shares import Shares

WEIGHTS = {"a": 1, "b": 8, "c": 2, "d": 1}
TASKS = [Task(f"{v}/{s}", {}, w) for v in ("x", "y") for s, w in WEIGHTS.items()]


def shares(gpus: str, *answered: str, **options: int | bool) -> Shares:
    program = Program(command=lambda *_: (), **options)  # type: ignore[arg-type]
    return Shares(TASKS, answered, [LocalGpu(gpu) for gpu in gpus.split(",")], program)


def names(tasks: list[Task]) -> list[str]:
    return [t.name for t in tasks]


def test_on_one_gpu_each_shape_has_its_slot_from_the_beginning() -> None:
    two = shares(",", "x/a")
    assert two.left == 7
    assert names(two.of(0)) == ["x/c", "y/a", "y/c"] and names(two.of(1)) == ["x/b", "x/d", "y/b", "y/d"]
    assert names(two.take(0, 2, 2)) == ["x/c", "y/a"]
    two.done(0, "x/c")
    assert two.left == 6 and names(two.take(0, 9, 2)) == ["y/a", "y/c"]


def test_on_several_gpus_the_heaviest_shapes_go_first_and_whole() -> None:
    two = shares("g,h")
    assert names(two.take(0, 9, 2)) == ["x/b", "y/b"]
    assert names(two.take(1, 9, 2)) == ["x/c", "y/c"], "half a fair share of the remaining 8 is 2"
    for name in ("x/b", "y/b"):
        two.done(0, name)
    assert names(two.take(0, 9, 2)) == ["x/a", "y/a"] and two.left == 6
    two.give_back(0)
    assert two.of(0) == [] and two.left == 6
    taken = [name for slot in (0, 0, 0) for name in names(two.take(slot, 9, 1)) if not two.done(slot, name)]  # type: ignore[func-returns-value]
    assert sorted(taken) == ["x/a", "x/d", "y/a", "y/d"]


def test_one_slot_takes_all_up_to_the_most_that_a_process_gets() -> None:
    assert names(shares("g").take(0, 9, 1)) == names(TASKS)
    assert sorted(names(shares("g").take(0, 5, 1))) == ["x/b", "x/c", "y/b", "y/c"], "shapes stay whole"


@pytest.mark.parametrize(("refill", "rest"), [(False, ["x/a", "x/c", "x/d"]), (True, ["x/c"])])
def test_tasks_that_may_go_anywhere_are_dealt_out(refill: bool, rest: list[str]) -> None:
    two = shares("g,h", "y/a", "y/b", "y/c", "y/d", chunk=1, refill=refill)
    assert names(two.take(0, 9, 2)) == ["x/b"] and names(two.take(1, 9, 2)) == rest
