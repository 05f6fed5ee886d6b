"""The report for a pull request: what it says is what the record says, and no cell breaks its table."""

from __future__ import annotations

import dataclasses

import pytest

from flashcore.gate.judge import judge
from flashcore.gate.wording import summary
from flashcore.report import markdown
from tests import factory
from tests.support.judged import summarized
from tests.support.pages import TODAY, full


def test_the_verdict_the_winner_and_its_bars() -> None:
    text = summarized(full(), today=TODAY)
    judged = judge(full(), today=TODAY)
    assert summary(judged) in text
    assert text.count("- ✗ ") == min(len(judged.failed), markdown.MOST_FAILED) > 0
    assert "| mission | `split` |" in text and "### mission: B=1, H=8, S=512, D=64" in text
    assert summarized(full(), today=TODAY) == text
    rows = [line for line in text.splitlines() if line.startswith("| █")]
    assert "slow" in rows[-1] and rows[-1].count("█") == markdown.BAR and rows[0].count("█") == 1
    assert len({line.count(" | ") for line in rows}) == 1


def test_nothing_in_a_record_breaks_a_table_or_is_markup() -> None:
    record = factory.record()
    suite = dataclasses.replace(record.suite, title="<b>a | b</b>\nc")
    assert "## &lt;b&gt;a \\| b&lt;/b&gt; c\n" in summarized(dataclasses.replace(record, suite=suite), today=TODAY)
    assert "| mission | unmeasured |" in summarized(factory.bare_record(), today=TODAY)


@pytest.mark.parametrize(("value", "count"), [(1.0, 1), (10.0, 9), (100.0, 16)])
def test_bars_are_on_a_log_scale(value: float, count: int) -> None:
    assert markdown.bar(value, 1.0, 100.0) == "█" * count
    assert markdown.bar(value, value, value) == "█"
