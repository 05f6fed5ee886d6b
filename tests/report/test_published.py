"""The figures of the published run's pages agree with each other."""

from __future__ import annotations

import functools

import pytest

from flashcore.model.record import Record
from flashcore.records import store
from flashcore.report import overview_page
from flashcore.report.case_view import CaseView
from flashcore.report.overview_page import Overview, Section
from flashcore.report.view import Book
from tests.conftest import ROOT

OVER_PEER = [key for key, *_ in overview_page.COLUMNS].index("over-peer")


@functools.cache
def published() -> Record:
    return store.read(ROOT / "profiles" / "20261122T201621Z-c175")


@functools.cache
def book() -> Book:
    return Book(published(), "static", None)


@functools.cache
def sections() -> dict[str, Section]:
    return {s.shape.name: s for s in Overview(book()).sections}


def case(variant: str, shape: str) -> CaseView:
    suite = published().suite
    return CaseView(book(), suite.variants[variant], suite.shapes[shape])


def test_headline_table_and_variant_page_have_one_ratio() -> None:
    for shape, section in sections().items():
        answer = section.answer
        assert answer is not None, shape
        winner = answer.case.variant.name
        recorded = published().facts.number("speedup_vs_peer", answer.case.subject)
        row = next(r for r in section.rows if r.cells[0].text == winner)
        assert answer.summary[3].sort == row.cells[OVER_PEER].sort == recorded, shape
        assert answer.peer.startswith(answer.summary[3].text), shape


def test_two_levels_of_a_time_are_stated_with_both() -> None:
    levels = "two levels: 3.24 µs in 76 % of the samples, 3.58 µs in the others"
    section = sections()["d64_s256_h8"]
    assert section.answer and section.answer.levels == [f"attention has {levels}"]
    time = next(r for r in section.rows if r.cells[0].text == "attention").cells[1]
    assert time.detail == "two levels" and levels in time.title
    assert levels in case("attention", "d64_s256_h8").answer[0]
    assert sections()["mission"].answer.levels == [  # type: ignore[union-attr]
        "cudnn has two levels: 10.1 µs in 74 % of the samples, 10.4 µs in the others"
    ]
    assert "levels" not in " ".join(case("attention", "d64_s4096").answer)


def test_a_prediction_of_time_and_its_step_have_one_ratio() -> None:
    """``wgmma_key_groups_2`` has 120 samples and its parent 110, and only 110 rounds of both."""
    record, compared = published(), 0
    for shape in record.suite.shapes.values():
        for step in book().ladder(shape).steps:
            for judged in step.judged:
                if judged.prediction.fact == step.time and judged.scale == "ratio" and judged.measured:
                    assert judged.measured == pytest.approx(step.ratio, rel=1e-12), step.variant.name
                    compared += 1
    assert compared


def test_every_speedup_in_a_remedy_is_the_steps() -> None:
    for shape in published().suite.shapes.values():
        steps = {s.variant.name: s for s in book().ladder(shape).steps}
        for remedies in book().remedies(shape).values():
            for r in remedies:
                assert 1 / r.faster == pytest.approx(steps[r.variant].ratio, rel=1e-12)
