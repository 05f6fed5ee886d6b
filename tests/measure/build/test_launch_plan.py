"""Launch plans: asked of the built library without a GPU, and what a bad one costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.measure.build import launch_plan
from flashcore.model.record import Plan
from tests.conftest import HOST_FAULTS, Built


def test_plans_of_the_toy_suite(toy: Built) -> None:
    shapes = list(toy.suite.shapes.values())
    plans = {(p.variant, p.shape): p for p in launch_plan.plans(toy.suite, toy.artifacts, shapes)}
    assert len(plans) == 6 and not any(p.error for p in plans.values())
    assert [x.grid for x in plans["plain", "tail"].launches] == [(4, 1, 1)]  # 1001 elements, 256 a block
    assert [x.grid for x in plans["wide", "tail"].launches] == [(1, 1, 1)]
    two = plans["two_steps", "small"]
    assert [x.kernel for x in two.launches] == ["copy_kernel", "multiply_kernel"]
    assert two.workspace_bytes == 4 * 4096


def test_a_plan_that_crashes_or_hangs_costs_only_itself(faulty: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "TIME_LIMIT", 2.0)
    shapes = list(faulty.suite.shapes.values())
    plans = {(p.variant, p.shape): p for p in launch_plan.plans(faulty.suite, faulty.artifacts, shapes)}
    assert set(plans) == {
        (v, s) for v in ("good", *HOST_FAULTS) for s in ("tail", "small")
    }  # fmt: skip
    errors = {name: plan.error for name, plan in plans.items() if plan.error}
    assert errors.pop(("plan_refuses", "small")) == "at most 2000 elements"
    assert not plans["plan_refuses", "small"].crashed
    for shape in ("tail", "small"):
        assert "signal 11" in errors.pop(("plan_null", shape))
        assert "no answer within 2 s" in errors.pop(("plan_hangs", shape))
        assert plans["plan_null", shape].crashed and plans["plan_hangs", shape].crashed
    assert not errors
    assert plans["plan_prints", "small"] == Plan("plan_prints", "small", plans["good", "small"].launches, 0)


def test_a_plan_that_gave_no_answer_is_asked_again(faulty: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "TIME_LIMIT", 1.0)
    chosen = [a for a in faulty.artifacts if a.variant in ("good", "plan_hangs")]
    launch_plan.plans(faulty.suite, chosen, list(faulty.suite.shapes.values()))

    def kept(variant: str) -> int:
        path = faulty.of(variant).plan_library
        assert path is not None
        return len(json.loads(Path(path).with_name("plans.json").read_bytes()))

    assert (kept("good"), kept("plan_hangs")) == (2, 0)


def test_damaged_plan_answers_are_asked_again(toy: Built) -> None:
    library = toy.of("plain").plan_library
    assert library is not None
    cache = Path(library).with_name("plans.json")
    shapes = list(toy.suite.shapes.values())
    expected = launch_plan.plans(toy.suite, [toy.of("plain")], shapes)
    for damage in ("", "{", "[1]", '{"1001": {}}', '{"1001": 7}'):
        cache.write_text(damage, encoding="utf-8")
        assert launch_plan.plans(toy.suite, [toy.of("plain")], shapes) == expected
