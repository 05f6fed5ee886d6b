"""Launch plans: asked of the built library without a GPU, and what a bad one costs."""

from __future__ import annotations

import json
import subprocess
import sys
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
        # It writes an answer to every open file and exits with 0.
        assert "ended with exit code 0" in errors.pop(("plan_answers", shape))
        sizes = [plans[v, shape].launches[0].dynamic_smem for v in ("plan_shares", "plan_shares_too")]
        assert sizes[1] - sizes[0] == 1024
    assert not errors
    assert plans["plan_prints", "small"] == Plan("plan_prints", "small", plans["good", "small"].launches, 0)


def test_variants_in_one_process_share_no_symbol(faulty: Built) -> None:
    """As the operators of several variants do."""
    libraries = [faulty.of(v).plan_library for v in ("plan_shares", "plan_shares_too")]
    code = f"""
from ctypes import CDLL, RTLD_GLOBAL, byref, c_char_p, c_int64, c_uint64
from flashcore.measure.build.launch_plan import _Record
for library in [CDLL(path, RTLD_GLOBAL) for path in {libraries}]:
    launches = (_Record * 32)()
    assert library.flashcore_launch_plan(byref(c_int64(4096)), launches, 32, byref(c_uint64()), byref(c_char_p())) == 1
    print(launches[0].dynamic_smem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert second - first == 1024


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
