"""The order in which ninja starts compilations."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.build.ninja_graph import CUBIN, Programs, Unit, graph
from flashcore.measure.machine.toolchain import Nvcc
from flashcore.suites import load
from tests.conftest import TOY


@pytest.mark.parametrize(
    ("processors", "order"),
    [(4, "ZY CBA X"), (2, "Z CBA YX"), (64, "ZYX CBA")],
)
def test_the_last_units_are_first_and_then_those_of_the_first_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processors: int, order: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processors))
    suite = load.load(TOY)
    plain = suite.variants["plain"]
    variants = [replace(plain, name=name, problem="other" if name in "xyz" else "scale") for name in "abcxyz"]
    units = [Unit(v, "sm_90a", tmp_path / v.name, "", (), (CUBIN,)) for v in variants]
    programs = Programs(Nvcc(tmp_path / "nvcc", tmp_path, "13.0", "13.0.88"), tmp_path / "g++", None, None)
    text = graph(suite, units, dict.fromkeys(("scale", "other"), tmp_path), programs)
    assert re.findall(r"what = (\w) sm_90a", text) == [*order.replace(" ", "").lower()]
    (inputs,) = re.findall(r": urgent (.*)", text)
    late = {v.name for v in variants[-(processors // 2) :]}
    assert {Path(file).parent.name for file in inputs.split()} == {*"abc"} | late
