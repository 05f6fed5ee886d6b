"""Publishing replaces a run's earlier lines; the page shows each run and every case's history."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.gate import judge
from flashcore.plugins.history import history, publish
from flashcore.records import store
from tests import factory
from tests.report.test_report import TODAY, Page


def write(profiles: Path, **changes: object) -> str:
    record = dataclasses.replace(factory.record(), **changes)  # type: ignore[arg-type]
    store.write(record, folder := store.begin(profiles, record.id))
    store.complete(folder)
    return record.id


def test_a_run_is_published_once_and_only_if_it_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    profiles, table = tmp_path / "profiles", tmp_path / "profiles" / "history.csv"
    words = ["publish", "--profiles", str(profiles)]
    assert main(words) == Exit.USAGE and "found neither" in capsys.readouterr().err
    first, second = write(profiles), write(profiles, id="20260103T000000Z-0001")
    bare = write(profiles, id="20260104T000000Z-0001", outcomes=())
    for names in ([first], [first], [second]):
        assert main([*words, *names]) == Exit.OK
    assert f"git add {profiles / first}.run.zip {table}" in capsys.readouterr().out
    lines = history.lines(factory.record())
    rows = history.read(table.read_text(), "")
    assert [r.run for r in rows] == [first] * len(lines) + [second] * len(lines)
    assert main([*words, bare]) == Exit.USAGE and "expected times to publish" in capsys.readouterr().err
    assert history.read(table.read_text(), "") == rows
    judged: list[str] = []
    monkeypatch.setattr(publish, "MOST_JUDGED", 1)
    monkeypatch.setattr(judge, "judge", lambda record, today: judged.append(record.id))
    (tmp_path / "reports" / first).mkdir(parents=True)
    (tmp_path / "reports" / first / "index.html").touch()
    assert main(words) == Exit.OK and judged == [bare], "only the newest are judged"
    page = (tmp_path / "reports" / "runs.html").read_text()
    assert f"{first}/index" in page and f"{second}/index" not in page
    elsewhere = tmp_path / "elsewhere"  # a history outlives its runs
    elsewhere.mkdir()
    table.rename(elsewhere / table.name)
    assert main(["publish", "--profiles", str(elsewhere)]) == Exit.OK
    assert "<polyline" in (tmp_path / "reports" / "runs.html").read_text()


def test_runs_and_history(tmp_path: Path) -> None:
    record = factory.record()
    judged = judge.judge(record, today=TODAY)
    older = dataclasses.replace(record, id="20250101T000000Z-0001", command="<b>")
    rows = [*history.lines(older), *(dataclasses.replace(x, isolated_us=2 * (x.isolated_us or 1), ranked_by="isolated",
                                                         driver="999") for x in history.lines(record))]  # fmt: skip
    runs = [publish.run_row(record, judged, f"{record.id}/index", True), publish.run_row(older, None, "", False)]
    text = publish.write(runs, rows, tmp_path / "r").read_text(encoding="utf-8")
    page = Page(text)
    assert f"{record.id}/index.html" in page.links
    told = page.row(older.id)
    assert told[-2][2] == "unmeasured" and told[-1][2] == "not published"
    words = " ".join(" ".join(page.text).split())
    assert "0.500 ×" in words
    assert "→ 999" in words and text.count("<polyline") == len(history.series(rows))
    assert publish.write(runs, rows, tmp_path / "s").read_bytes() == text.encode(), "the same bytes"
    limit = factory.budget("registers", maximum=1)
    bad = judge.judge(factory.record(factory.suite(budgets=[limit])), today=TODAY)
    failing = publish.write([publish.run_row(record, bad, "", True)], rows, tmp_path / "f").read_text(encoding="utf-8")
    assert Page(failing).row(record.id)[-2][2] == f"{bad.counts()['fail']} failed"
    assert "Nothing was published yet" in publish.write([], [], tmp_path / "e").read_text(encoding="utf-8")


def test_a_history_is_drawn_from_0_with_a_tick_where_the_machine_changed(tmp_path: Path) -> None:
    first = next(x for x in history.lines(factory.record()) if (x.variant, x.shape) == ("fast", "mission"))
    runs = [("20260101T000000Z-0001", 10.0, "580"), ("20260102T000000Z-0001", 5.0, "580"),
            ("20260103T000000Z-0001", 2.5, "590")]  # fmt: skip
    rows = [dataclasses.replace(first, run=run, isolated_us=us, driver=driver) for run, us, driver in runs]
    text = publish.write([], rows, tmp_path).read_text(encoding="utf-8")
    width, height = publish.WIDTH, publish.HEIGHT
    ys = [height - 3 - (height - 6) * us / 10 for _, us, _ in runs]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip((4, width / 2, width - 4), ys, strict=True))
    assert ys[0] == 3 and f'points="{points}"' in text and f'cx="{width - 4:.1f}" cy="{ys[2]:.1f}"' in text
    assert text.count('class="grid"') == 1 and f'd="M{width - 4:.1f} 0V{height}"' in text
    assert 'aria-label="10, 5, 2.5 µs"' in text
