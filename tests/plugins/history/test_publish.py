"""Publishing packs a run; the page shows each run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.gate import judge
from flashcore.model.record import Facts
from flashcore.plugins.history import publish
from flashcore.plugins.runs.index import Index
from flashcore.records import lookup, store
from tests import factory
from tests.plugins.trends.nights import run_of, write
from tests.report.test_report import TODAY, Page

pytest.importorskip("numpy")


def test_a_run_is_packed_only_if_it_was_timed_and_then_counts_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    profiles, page = tmp_path / "profiles", tmp_path / "reports" / "runs.html"
    words = ["publish", "--profiles", str(profiles)]
    assert main(words) == Exit.USAGE and "found none" in capsys.readouterr().err
    write(profiles, 2)
    first, second = run_of(0), run_of(1)
    bare = "20260704T000000Z-0001"
    store.write(
        dataclasses.replace(factory.record(), id=bare, outcomes=(), samples={}, facts=Facts()),
        folder := store.begin(profiles, bare),
    )
    store.complete(folder)
    for _ in range(2):
        assert main([*words, first]) == Exit.OK
        assert f"git add {profiles / first}.run.zip" in capsys.readouterr().out
    packed = lookup.find(profiles, f"{profiles / first}.run.zip")
    assert [*store.read(packed).facts] == [*store.read(profiles / first).facts]
    published = {run: Page(page.read_text()).row(run)[-1][2] for run in (first, second)}
    assert published == {first: "published", second: "not published"}
    assert main([*words, bare]) == Exit.USAGE and "expected times to publish" in capsys.readouterr().err
    judged: list[str] = []
    monkeypatch.setattr(publish, "MOST_JUDGED", 1)
    monkeypatch.setattr(judge, "judge", lambda record, today: judged.append(record.id))
    (tmp_path / "reports" / first).mkdir(parents=True)
    (tmp_path / "reports" / first / "index.html").touch()
    assert main(words) == Exit.OK and judged == [bare], "only the newest are judged"
    text = page.read_text()
    assert f"{first}/index" in text and f"{second}/index" not in text


def test_the_page_has_each_run_and_its_gate(tmp_path: Path) -> None:
    record = factory.record()
    judged = judge.judge(record, today=TODAY)
    older = dataclasses.replace(record, id="20250101T000000Z-0001", command="<b>")
    runs = [publish.run_row(record, judged, f"{record.id}/index", True), publish.run_row(older, None, "", False)]
    text = publish.write(runs, tmp_path / "r").read_text(encoding="utf-8")
    page = Page(text)
    assert f"{record.id}/index.html" in page.links
    told = page.row(older.id)
    assert told[-2][2] == "unmeasured" and told[-1][2] == "not published"
    assert publish.write(runs, tmp_path / "s").read_bytes() == text.encode(), "the same bytes"
    limit = factory.budget("registers", maximum=1)
    bad = judge.judge(factory.record(factory.suite(budgets=[limit])), today=TODAY)
    failing = publish.write([publish.run_row(record, bad, "", True)], tmp_path / "f").read_text("utf-8")
    assert Page(failing).row(record.id)[-2][2] == f"{bad.counts()['fail']} failed"


def test_the_published_history_continues_with_the_runs_that_were_pruned() -> None:
    profiles = Path(__file__).parents[3] / "profiles"
    points = Index([profiles]).points("time", "atomic_o", "mission")
    assert len({p.run for p in points}) >= 4 and all(p.value > 0 for p in points)
