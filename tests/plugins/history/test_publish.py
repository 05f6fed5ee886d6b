"""Publishing a run again replaces its lines; a run without times has none."""

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
