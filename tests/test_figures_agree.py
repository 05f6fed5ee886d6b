"""The figures of the published run's pages agree with each other."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest

from flashcore import report, roofline_figure
from flashcore.cli import text_tables
from flashcore.explain.limiter import remedies, time_parts
from flashcore.gate.wording import summary
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject
from flashcore.model.suite import Shape
from flashcore.model.text import six_digits
from flashcore.report import budget_page, overview_page, roofline_page, variant_page
from flashcore.report.case_view import CaseView
from flashcore.report.overview_page import Overview, ShapeSection
from flashcore.report.variant_page import VariantView
from flashcore.report.view import Book
from tests.conftest import two_names
from tests.marks import marks
from tests.support.judged import book_of, summarized


@functools.cache
def book() -> Book:
    return book_of(two_names())


@functools.cache
def sections() -> dict[str, ShapeSection]:
    return {s.shape.name: s for s in Overview(book()).sections}


def case(variant: str, shape: str) -> CaseView:
    suite = two_names().suite
    return CaseView(book(), suite.variants[variant], suite.shapes[shape])


def test_headline_table_and_variant_page_have_one_ratio() -> None:
    as_recorded = 0
    for shape, section in sections().items():
        answer = section.answer
        assert answer is not None, shape
        winner = answer.case.variant.name
        row = next(r for r in section.rows if r.cells[0].text == winner)
        column = [key for key, *_ in section.columns].index("over-reference")
        assert answer.summary[2].sort == row.cells[column].sort, shape
        assert answer.speedup.startswith(f"{answer.summary[2].sort:.3f}\u00a0×"), shape
        as_recorded += 1
        assert answer.summary[2].sort == two_names().facts.number("speedup_vs_reference", answer.case.subject), shape
    assert as_recorded == 13


def computation(shape: Shape) -> tuple[object, ...]:
    """The parameters of ``general``, of which ``forward`` fixes some."""
    p = {"HKV": shape.params["H"], "CAUSAL": 0, "DTYPE": "float16", "LSE": 0, "VIEWS": 0, **shape.params}
    return tuple(sorted(p.items()))


def on_pages(pattern: str) -> list[str]:
    """All matches on the overview."""
    made = overview_page.page(book())
    shell = report._Shell(book(), [made], False)
    return re.findall(pattern, shell.html(made.template, made, anchor="index", view=made.view))


def in_documentation() -> list[str]:
    pytest.importorskip("sphinx")
    from docs._ext import generated_reference

    return [line.split("`")[1] for line in list(generated_reference._times(two_names()))[2:-1]]


#: Each table that ranks variants or has a verdict: the names of its rows.
TABLES: dict[str, Callable[[], list[str]]] = {
    "overview": lambda: [s.row.name for s in sections().values()],
    "switch": lambda: on_pages('data-names="([^"]*)"'),
    "all shapes": lambda: [name.replace("<wbr>", "") for name in on_pages(r'index.html\?shape=\w+">(.*?)</a>')],
    "rooflines": lambda: [s.title for s in roofline_page.Roofline(book()).shapes],
    "terminal": lambda: re.findall(r"^(\S.*) \(.*\), ranked by", text_tables.ladder(two_names()), re.MULTILINE),
    "markdown": lambda: re.findall(r"^\| (.*?) \|", summarized(two_names()).partition("### Winners")[2], re.MULTILINE)[
        2:
    ],
    "documentation": in_documentation,
}


@pytest.mark.parametrize("table", TABLES)
def test_identical_problems_are_one_row(table: str) -> None:
    shapes = two_names().suite.shapes
    rows = [name.split(" = ") for name in TABLES[table]()]
    computations = [{computation(shapes[name]) for name in names} for names in rows]
    assert all(len(same) == 1 for same in computations)
    assert len(rows) == len(set().union(*computations)) == 13 and sum(map(len, rows)) == 21


def test_one_problem_under_two_names_has_one_verdict() -> None:
    """It was 0.63 times cuDNN's speed as ``b4_s4096`` and 1.27 times as ``d64_s4096``."""
    section = sections()["b4_s4096"]
    assert section.answer is not None
    links = {row.cells[0].text: row.cells[0].href for row in section.rows}
    assert links["xor_swizzle"] == "variant/xor_swizzle?shape=b4_s4096"
    assert links["attention"] == "variant/attention?shape=d64_s4096"
    winner, _, over_reference, reference = section.answer.summary
    assert winner.href == "variant/wgmma_persistent?shape=d64_s4096" and reference.text == "cudnn_general"
    # cudnn took 4 % less time as ``b4_s4096``, on the other GPU.
    assert section.answer.pair == "wgmma_persistent/d64_s4096 against cudnn_general/d64_s4096"
    names = (("cudnn_general", "d64_s4096"), ("wgmma_persistent", "d64_s4096"))
    times = [two_names().facts.number("back_to_back_p50", CaseSubject(Case(v, s))) or 0 for v, s in names]
    assert over_reference.sort == pytest.approx(times[0] / times[1], rel=0.01)


def test_two_levels_of_a_time_are_stated_with_both() -> None:
    levels = "two levels: 3.24 µs in 76 % of the samples, 3.58 µs in the others"
    section = sections()["s256"]
    assert section.answer and section.answer.levels == [f"attention has {levels}"]
    time = next(r for r in section.rows if r.cells[0].text == "attention").cells[1]
    assert time.detail == "two levels" and levels in time.title
    assert levels in case("attention", "d64_s256_h8").sentence[0]
    cudnn = next(r for r in sections()["mission"].rows if r.cells[0].text == "cudnn").cells[1]
    assert "two levels: 10.1 µs in 74 % of the samples, 10.4 µs in the others" in cudnn.title
    assert "levels" not in " ".join(case("attention", "d64_s4096").sentence)


def test_a_prediction_of_time_and_its_step_have_one_ratio() -> None:
    """``wgmma_key_groups_2`` has 120 samples and its parent 110, and only 110 rounds of both."""
    record, compared = two_names(), 0
    for shape in record.suite.shapes.values():
        for step in book().ladder(shape).steps:
            for judged in step.judged:
                if judged.prediction.fact == step.time and judged.scale == "ratio" and judged.measured:
                    assert step.speedup, step.variant.name
                    assert judged.measured == pytest.approx(1 / step.speedup.value, rel=1e-12), step.variant.name
                    compared += 1
    assert compared


def test_every_speedup_in_a_remedy_is_the_steps() -> None:
    for shape in two_names().suite.shapes.values():
        steps = {s.variant.name: s for s in book().ladder(shape).steps}
        for reduced in remedies(book().readings, shape.name).values():
            for r in reduced:
                over = steps[r.variant].speedup
                assert over and r.faster == pytest.approx(over.value, rel=1e-12)


def test_the_roof_that_a_share_is_of_is_among_the_roofs_drawn() -> None:
    for section in roofline_page.Roofline(book()).shapes:
        names = " ".join(trace.get("name", "") for trace in section.drawn["data"])
        for mark in marks(section.drawn):
            level = roofline_figure.name(mark["roof"].partition(",")[0])
            assert level in names and 0 < mark["percent of the roof"] <= 100.1


def test_memory_has_a_bar_for_each_counted_path() -> None:
    bars = case("tma_split_keys", "mission").memory
    assert bars["L2 ↔ SMs"].text and "L2 → SMs" not in bars, "the sum stands in for the directions"
    assert (bars["DRAM → L2"].text, bars["DRAM → L2"].unit) == ("1.600", "MB")
    assert six_digits(8_224_608.0) == 8_224_608 and six_digits(0.123456789) == 0.123457


def test_waves_of_an_arch_without_a_gpu_say_why_they_are_missing() -> None:
    view = VariantView(book(), two_names().suite.variants["tma_split_keys"])
    waves = 3 + [*variant_page.OCCUPANCY].index("waves")
    by_arch = {row[0].text: row[waves] for row in view.occupancy}
    assert by_arch["sm_90a"].kind == "number"
    assert all("number of SMs is unknown" in c.title for arch, c in by_arch.items() if arch != "sm_90a")


def test_the_counts_of_unmeasured_results_include_those_of_goals() -> None:
    unmeasured = book().judgement.counts("goal")["unmeasured"]
    assert unmeasured and f" goals reached, {unmeasured} unmeasured" in summary(book().judgement)
    page = budget_page.page(book())
    shell = report._Shell(book(), [page], False)
    legend = shell.html(page.template, page, anchor="budgets", view=page.view).split("</fieldset>")[0]
    counts = book().judgement.counts()
    assert f"{counts['unmeasured']:,} limits, {unmeasured:,} goals" in legend


def test_a_limiter_has_one_share_on_its_page() -> None:
    """In the bar, the table, the ladder's picture, the steps that reduced it and the advice."""
    view = case("tma_split_keys", "mission")
    parts = view.parts
    assert view.ranked[0][0] is parts.limiter and len(view.ranked) >= 4
    shares = {
        kind: use.share for kind, use in time_parts(view.book.readings, Case("tma_split_keys", "mission")).uses.items()
    }
    assert shares["launch"] == parts.share("launch") and shares["issue"] == parts.share("issue")
    assert all(x.gain is None or x.gain <= parts.above_floor for x in view.steps)
    for part, _, reduced in view.ranked:
        for r in reduced:
            same = [time_parts(view.book.readings, Case(r.parent, shape)) for shape in ("mission", "d64_s512_h8")]
            assert r.before in [x.share(part.kind) for x in same]
