"""`flashcore bounds`: the keys that its docstring promises, and the values of the analysis."""

from __future__ import annotations

import pytest

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.measure.workers.problem_file import load_problem
from flashcore.suites.load import load
from tests.cli.test_output import json_of
from tests.conftest import TOY


def test_the_json_has_the_bounds_of_the_analysis(capsys: pytest.CaptureFixture[str]) -> None:
    result, suite = json_of(capsys, "bounds", "--suite", str(TOY), "--device", "h200", "--shape", "small"), load(TOY)
    device = devices.find("h200")
    assert device is not None and result["device"] == device.title
    shape = suite.shapes["small"]
    work = load_problem(suite.root, suite.problems[shape.problem].file).work(dict(shape.params))
    rows = [r for r in result["bounds"] if r["compute"] == "fp32"]
    bounds = roofline.bounds(work, "fp32", roofline.roofs(device))
    assert [(r["resource"], r["us"], r["amount"]) for r in rows] == [(b.resource, b.us, b.amount) for b in bounds]
    (floor,) = (r for r in rows if r["floor"])
    assert floor["us"] == max(r["us"] for r in rows if r["us"] is not None)
    assert any(r["us"] is None for r in rows) and all((r["us"] is None) == bool(r["reason"]) for r in rows)
