"""Runs compared through the public API."""

from __future__ import annotations

import pytest

import flashcore as fc
from tests import factory


def test_two_runs_are_compared() -> None:
    worse = factory.fact("registers", 120, arch="sm_80", kernel="fast_kernel")
    a, b = fc.Run(factory.record()), fc.Run(factory.record(None, [worse], {"fast": 20.0}, id="20260102T030405Z-0002"))
    found = fc.compare(a, b)
    assert found.static[["fact", "before", "after", "direction"]].values.tolist() == [["registers", 96, 120, "worse"]]
    assert found.times.query("mode == 'isolated'").loc[("fast", "mission"), "ratio"].item() == pytest.approx(
        2, rel=0.01
    )
    assert found.remarks == ()


def test_times_of_two_gpus_are_not_set_side_by_side() -> None:
    other = fc.Run(factory.record(environment=factory.environment(gpu="NVIDIA A100")))
    found = fc.compare(other, fc.Run(factory.record()))
    assert found.times.empty
    assert list(found.times.columns[:2]) == ["mode", "before_us"]
    assert any("times are not comparable" in remark for remark in found.remarks)
