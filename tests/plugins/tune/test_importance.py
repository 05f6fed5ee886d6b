"""What an axis matters: the one that decides comes first, and too few candidates say nothing."""

from __future__ import annotations

import pytest

from flashcore.errors import CapabilityError
from flashcore.plugins.tune import importance
from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.space import Space
from flashcore.plugins.tune.study import Result

AXES = {"IDLE": (1, 2, 3), "DECIDES": (1, 2, 4, 8, 16), "ONE": (7,), "WORD": ("a", "b")}
SPACE = Space(name="s", variant="v", axes=AXES, conditions=(), shapes=("small",))
GRID = Grid(SPACE)


def timed() -> list[Result]:
    return [Result(i, times={"small": 100.0 / int(GRID.point(i)["DECIDES"])}) for i in range(len(GRID))]


def test_the_axis_that_decides_comes_first_and_shares_add_up() -> None:
    pytest.importorskip("optuna")
    found = importance.importance(GRID, timed(), "small")
    assert next(iter(found.shares)) == "DECIDES" and found.shares["DECIDES"] > 0.8 and found.shares["ONE"] == 0
    assert set(found.shares) == set(SPACE.axes) and sum(found.shares.values()) == pytest.approx(1)
    assert found.top == 5 and not found.reason
    assert importance.importance(GRID, timed(), "small") == found


def test_too_few_and_no_optuna_are_unmeasured_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    few = importance.importance(GRID, timed()[:19], "small")
    assert not few.shares and few.reason == "expected at least 20 timed candidates, found 19"

    def absent() -> None:
        raise CapabilityError("no optuna", "install it")

    monkeypatch.setattr(importance, "load_optuna", absent)
    assert importance.importance(GRID, timed(), "small").reason == "no optuna"
