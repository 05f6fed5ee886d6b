"""Terminal, brief, watch, Markdown, overview and variant page show one answer: each of their figures is one of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flashcore.cli import inner_loop
from flashcore.cli.brief import brief
from flashcore.explain.answer import Answer
from flashcore.features.watch import answers as watch
from flashcore.model.case import Case
from flashcore.pipeline.judging import Judged
from flashcore.records import store
from flashcore.report import overview_page
from flashcore.report.case_view import CaseView
from flashcore.report.overview_page import Overview
from flashcore.report.view import Book
from tests.conftest import published_run
from tests.support.judged import judged, summarized
from tests.test_page_figures import figures, of

#: With counters, without, and of the machine's roofs.
RUNS = ("20261201T143401Z-338d", "20261201T143237Z-8188", "20261201T113945Z-7c3c")


def shown(answer: Answer) -> set[str]:
    """Every figure that a reader may see of an answer."""
    gap, time, parts = answer.time.gap, answer.time, answer.parts
    derived = [gap.ratio, gap.floor_us] if gap else []
    pairs = [str(case) for pair in time.pairs.values() for case in pair]
    why = [answer.correct.missing, time.missing, answer.uncounted]
    texts = [time.levels, time.first_round, str(answer.case), *time.names.values(), *pairs]
    steps = [(x.action, x.gain, x.bound, x.values, x.precedent) for x in answer.steps]
    whole = [answer.correct, time.us, [*time.others.values()], [*time.over.values()], parts, steps, answer.unadvised]
    return of(
        *whole, derived, why, texts, len(answer.correct.wrong) + answer.correct.correct, len(answer.correct.unchecked)
    )


@pytest.mark.parametrize("run", RUNS)
def test_every_surface_shows_the_figures_of_one_answer(run: str) -> None:
    record = store.read(published_run(run))
    judgement = judged(record)
    book = Book(record, judgement.judgement)
    compared = 0
    for variant in record.suite.variants.values():
        here = [book.answers.of(Case(variant.name, s.name)) for s in record.suite.shapes.values() if variant.runs_on(s)]
        for answer in here:
            view = CaseView(book, variant, record.suite.shapes[answer.case.shape])
            texts = [*view.sentence, *watch.of_limits(answer).lines, *watch.of_times(answer.time).lines]
            texts += watch.of_check(answer.correct).lines
            texts += [f"{part.brief} {part.evidence}" for part, *_ in view.ranked]
            more = set() if any(answer.time.over) or answer.time.us else figures(" ".join(view.sentence))  # causes
            assert figures("\n".join(texts)) <= shown(answer) | more, answer.case
            _budgets(book, judgement, answer)
            compared += len(figures("\n".join(texts))) + _brief(brief(judgement, str(answer.case)), answer)
        lines = "\n".join(inner_loop.answers(judgement, None, variant.name)).partition("4 budgets?")[0]
        assert figures(lines.partition("1 correct?")[2]) <= set().union(*map(shown, here)) | {"1", "2", "3"}
        compared += len(figures(lines))
    compared += _overview(book)
    assert compared > 500


def _budgets(book: Book, judgement: Judged, answer: Answer) -> None:
    """Compares what terminal, watch and pages show of a variant's budgets with the answer."""
    variant, counts = book.record.suite.variants[answer.case.variant], answer.budgets.counts()
    content = watch.of_budgets(answer.budgets)
    assert content.data["counts"] == counts and len(content.data["failed"]) == len(answer.budgets.failed)
    terminal = "\n".join(inner_loop.answers(judgement, None, variant.name)).partition("4 budgets?")[2]
    assert [line.strip() for line in terminal.splitlines()] == [*content.lines]
    badge = book.limits_badge(variant)
    assert variant.is_reference or all(f"{n} {status}" in badge.title for status, n in counts.items())
    assert all(v in book.judgement.verdicts for v in (*answer.budgets.verdicts, *answer.nearest))


def _brief(data: dict[str, Any], answer: Answer) -> int:
    """Compares a brief with the answer; the number of figures."""
    time, gap, first = answer.time, answer.time.gap, answer.parts.limiter
    assert data["time"].get("us") == time.us and data["limiter"].get("share") == (first.share if first else None)
    assert (data["time"].get("floor") or {}) == (
        {"us": gap.floor_us, "ratio": gap.ratio, "of": gap.floor.resource} if gap and time.us else
        "unmeasured" if time.us else {}
    )  # fmt: skip
    assert [x["saves_at_most"] for x in data["advice"]] == [x.gain for x in answer.steps]
    assert [x["budget"] for x in data["budgets"]] == [x.budget for x in answer.nearest]
    assert (data["no_advice_for"] or {}).get("percent") == (answer.unadvised.share if answer.unadvised else None)
    return 4 + len(answer.steps)


def _overview(book: Book) -> int:
    """Compares the overview and the Markdown with the answers; the number of figures."""
    compared = 0
    overview, winners = Overview(book), dict[str, Answer]()
    everywhere = [book.answers.budgets(name) for name in book.record.suite.variants]
    assert sorted(map(id, overview.failed)) == sorted(id(v) for of in everywhere for v in of.failed)
    assert len(book.judgement.at_risk) == sum(len(of.at_risk) for of in everywhere)
    for section in overview.sections:
        if (winner := section.answer) is None:
            continue
        answer = winners[section.row.name] = winner.case.answer
        texts = (winner.time, winner.floor, winner.speedup, winner.interval, winner.floor_title, *winner.levels)
        if not book.rates:
            assert figures(" ".join(texts)) <= shown(answer) | figures(" ".join(winner.levels)), answer.case
        assert (overview_page.TWO_LEVELS in winner.summary[1].detail) == bool(answer.time.levels)
        assert section.time is None or section.time == answer.parts
        assert section.unadvised == answer.unadvised
        assert [x for x, _ in section.steps] == [*{x.rule: x for x in reversed(answer.steps)}.values()][::-1][:3]
        keys = [key for key, *_ in section.columns]
        for row in section.rows:
            cells = dict(zip(keys, row.cells, strict=True))
            name = cells["variant"].text
            time = book.answers.time(section.row.cases[name])
            over = {"over-parent": "parent", "over-reference": "reference", "over-baseline": "baseline"}
            for key, role in over.items():
                ratio = {str(r): speedup for r, speedup in time.over.items()}.get(role)
                if ratio and isinstance(cells[key].sort, float):
                    assert cells[key].sort == ratio.value, (name, key)
                    compared += 1
            if time.gap:
                assert cells["above-floor"].sort == time.gap.ratio and cells["floor"].sort == time.gap.floor_us
                compared += 2
    for line in _winners_of(summarized(book.record)):
        name = line.split("|")[1].strip()
        if name in winners and not book.rates:
            assert figures(line.partition("|")[2].partition("|")[2]) <= shown(winners[name]) | {"95"}
            compared += len(figures(line))
    return compared


def _winners_of(markdown: str) -> Iterator[str]:
    return (line for line in markdown.partition("### Winners")[2].splitlines() if line.startswith("| "))


def test_an_answer_is_made_once() -> None:
    record = store.read(published_run(RUNS[0]))
    book = Book(record, judged(record).judgement)
    section = overview_page.page(book).view.sections[0]
    assert section.answer and section.answer.case.answer is book.answers.of(section.answer.case.subject.case)
