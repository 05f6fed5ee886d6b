"""The page of all runs: each with its gate and its report, and every case's history."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from flashcore.gate.judge import judge
from flashcore.plugins.history import history, runs_page
from tests import factory
from tests.report.test_report import TODAY, Page


def test_runs_and_history(tmp_path: Path) -> None:
    record = factory.record()
    judged = judge(record, today=TODAY)
    older = dataclasses.replace(record, id="20250101T000000Z-0001", command="<b>")
    rows = [*history.lines(older), *(dataclasses.replace(x, isolated_us=2 * (x.isolated_us or 1), ranked_by="isolated",
                                                         driver="999") for x in history.lines(record))]  # fmt: skip
    runs = [runs_page.Run(record, judged, f"{record.id}/index", True), runs_page.Run(older, None, "", False)]
    text = runs_page.write(runs, rows, tmp_path / "r").read_text(encoding="utf-8")
    page = Page(text)
    assert f"{record.id}/index.html" in page.links
    told = page.row(older.id)
    assert told[-2][2] == "unmeasured" and told[-1][2] == "not published"
    words = " ".join(" ".join(page.text).split())
    assert "fast/mission" in words and "2.00 × slower isolated" in words and "0.500 ×" in words
    assert "→ 999" in words and text.count("<polyline") == len(history.series(rows))
    assert runs_page.write(runs, rows, tmp_path / "s").read_bytes() == text.encode(), "the same bytes"
    limit = factory.budget("registers", maximum=1)
    bad = judge(factory.record(factory.suite(budgets=[limit])), today=TODAY)
    failing = runs_page.write([runs_page.Run(record, bad, "", True)], rows, tmp_path / "f").read_text(encoding="utf-8")
    assert Page(failing).row(record.id)[-2][2] == f"{bad.counts()['fail']} failed"
    assert "Nothing was published yet" in runs_page.write([], [], tmp_path / "e").read_text(encoding="utf-8")


def test_a_history_is_drawn_from_0_with_a_tick_where_the_machine_changed(tmp_path: Path) -> None:
    first = next(x for x in history.lines(factory.record()) if (x.variant, x.shape) == ("fast", "mission"))
    runs = [("20260101T000000Z-0001", 10.0, "580"), ("20260102T000000Z-0001", 5.0, "580"),
            ("20260103T000000Z-0001", 2.5, "590")]  # fmt: skip
    rows = [dataclasses.replace(first, run=run, isolated_us=us, driver=driver) for run, us, driver in runs]
    text = runs_page.write([], rows, tmp_path).read_text(encoding="utf-8")
    width, height = runs_page.WIDTH, runs_page.HEIGHT
    ys = [height - 3 - (height - 6) * us / 10 for _, us, _ in runs]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip((4, width / 2, width - 4), ys, strict=True))
    assert ys[0] == 3 and f'points="{points}"' in text and f'cx="{width - 4:.1f}" cy="{ys[2]:.1f}"' in text
    assert text.count('class="grid"') == 1 and f'd="M{width - 4:.1f} 0V{height}"' in text
    assert 'aria-label="10, 5, 2.5 µs"' in text
