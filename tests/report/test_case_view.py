"""The speed of light and the limiters on a case's page."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from flashcore.explain.limiter import time_parts
from flashcore.model.case import Case
from flashcore.model.record import Facts, Record
from flashcore.report.case_view import SPEED_OF_LIGHT, CaseView
from flashcore.report.cells import Cell
from tests import factory
from tests.conftest import two_names
from tests.support.judged import book_of

BUSY = {"shared_wavefronts": 8e6, "l2_throughput": 70.0, "sm_throughput": None}


def bars(record: Record, variant: str, shape: str) -> dict[str, Cell]:
    book, suite = book_of(record), record.suite
    return CaseView(book, suite.variants[variant], suite.shapes[shape]).speed_of_light


def test_an_imported_kernel_has_ncus_own_figures(sample_record: Any) -> None:
    """The values that ncu prints for the launch of median duration."""
    record = sample_record("triton_full")
    drawn = bars(record, "softmax_kernel", next(iter(record.suite.shapes)))
    assert list(drawn) == [name for name, _ in SPEED_OF_LIGHT]
    figures = {name: bar.share for name, bar in drawn.items() if bar.share is not None}
    assert figures == pytest.approx(
        {
            "Compute": 44.70, "Memory": 46.69, "tensor pipe": 0.0, "FMA pipe": 21.33, "ALU pipe": 29.23,
            "LSU pipe": 52.14, "XU pipe": 15.80, "L1/TEX": 46.69, "L2": 72.62, "DRAM": 35.78, "shared memory": 33.2,
        },
        rel=2e-3,
    )  # fmt: skip


def test_what_is_unmeasured_says_so_and_shares_are_those_of_the_limiters() -> None:
    facts = factory.facts_of(BUSY, "fast", shape="mission")
    record = factory.record(facts=facts)
    drawn = bars(record, "fast", "mission")
    assert drawn["Compute"].share is None and "unmeasured: no reason given" in drawn["Compute"].title
    assert all(bar.text == "unmeasured" for bar in drawn.values() if bar.share is None)
    assert drawn["tensor pipe"].share == 20.0 and drawn["FMA pipe"].share is None
    parts = time_parts(book_of(record).readings, Case("fast", "mission"))
    for kind, name in (("l2", "L2"), ("shared", "shared memory")):  # ncu's time is that beside the launch
        assert parts.share(kind) == pytest.approx((drawn[name].share or 0) * (100 - parts.share("launch")) / 100)
    without = dataclasses.replace(record, facts=Facts([f for f in record.facts if f.source != "ncu"]))
    assert not bars(without, "fast", "mission")


def test_the_limiters_name_the_steps_that_the_advice_names() -> None:
    """Also one at an identical shape: it read "no step removed it" below the advice to do as that step did."""
    recorded = two_names()
    suite = recorded.suite
    view = CaseView(book_of(recorded), suite.variants["cluster_keys"], suite.shapes["d64_s512_h8"])
    shown = {limiter.kind: steps for limiter, _, steps in view.ranked}
    advised = [x for x in view.steps if x.limiter in shown]
    assert advised and all(x.remedy == next(iter(shown[x.limiter]), None) for x in advised)
    assert any(x.remedy for x in advised)
