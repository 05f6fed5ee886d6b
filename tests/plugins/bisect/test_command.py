"""``flashcore bisect`` in a real repository, timed on the CPU, where callables run."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.measure.settings import Bench, Check, Settings
from flashcore.model.record import Facts
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.run import Run
from flashcore.plugins.against import against
from flashcore.plugins.against.against import Options
from flashcore.plugins.against.comparison import Row
from flashcore.plugins.bisect import command
from flashcore.records import store
from tests import factory
from tests.plugins.against.test_against import SPIN, committed, spun
from tests.plugins.against.test_checkout import git
from tests.plugins.trends.nights import run_of

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def history(tmp_path: Path, compiler: toolchain.Nvcc, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Eight commits; the sixth doubles the work, others change comments or an unrelated file."""
    monkeypatch.chdir(tmp_path)
    folder = committed(tmp_path, SPIN)
    for number in range(1, 8):
        if number == 5:
            spun(folder, 4000)
        peers = folder / "peers.py"
        peers.write_text(peers.read_text() + f"# {number}\n")
        git(tmp_path, "commit", "-qam", f"number {number}")
    return git(tmp_path, "log", "--reverse", "--format=%H").split()


def counted(context: Context) -> Run:
    """A recorded run that counted the case: more bytes, and registers, in commits that double the work."""
    slow = "4000" in Path(context.suite.root, "loops.py").read_text()
    suite = factory.suite([factory.variant("spun")], [factory.shape("small")], baseline="spun")
    base = factory.record(suite)
    values = {"dram_bytes": 1000.0 * (1 + slow), "registers": 40 + slow}
    facts = [replace(f, value=values[f.name]) if f.name in values else f for f in base.facts]
    record = replace(base, id=run_of(slow), facts=Facts(facts))
    store.write(record, folder := store.begin(Path(context.settings.profiles), record.id))
    return Run(record, store.complete(folder), context.settings)


def test_the_commit_that_doubled_the_work_is_named(history: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("suite", variants=("spun",), shapes=("small",), bench=Bench(samples=30), check=Check(repeats=2))
    chosen = Options(history[0], processes=4, device="cpu")
    result = command.bisect(settings, chosen, "HEAD", print)
    assert result.exit_code == Exit.OK and result.search is not None
    assert result.commits[result.search.bad] == history[5] and list(result.rows) == [history[-1]], "timed once"
    text = command.as_text(result)
    assert f"first slow commit: {history[5][:12]} number 5" in text and "confidence at least 99.9 %" in text
    data = json.loads(command.as_json(result))
    assert data["first_slow"] == history[5] and data["last_fast"] == history[4]
    assert git(Path(), "worktree", "list").count("\n") == 0
    assert data["counters"] is None and "counters: unmeasured" in text
    assert not Path("profiles").exists(), "an old commit's run is no night of the trend"
    monkeypatch.setattr(pipeline, "run", counted)
    text = command.as_text(command.bisect(settings, chosen, "HEAD", print))
    assert "counters: dram_bytes 1,000 → 2,000" in text and "static facts: registers 40 → 41" in text
    fine = command.bisect(settings, chosen, history[4], print)
    assert fine.search is None and fine.exit_code == Exit.OK and "nothing to search" in command.as_text(fine)


@pytest.mark.parametrize(("change", "slow"), [(0.001, False), (0.012, None)])
def test_a_commit_that_may_be_as_slow_as_the_last_one_is_not_called_fast(
    change: float, slow: bool | None, history: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise of 2 %, a commit that is slower by 1.2 % may be slower by 3 % like the last one."""
    rows: list[tuple[Any, float]] = [("slower", 0.03), ("no difference", change)]
    timed = (Row("spun/small", fate, change=change, critical=0.02) for fate, change in rows)
    monkeypatch.setattr(against, "run", lambda *_: SimpleNamespace(rows=[next(timed)]))
    with ThreadPoolExecutor(1) as builder:
        settings = Settings("suite", variants=("spun",), shapes=("small",))
        commits = command._History(settings, Options(history[0]), tuple(history), builder, print)
        assert commits.is_slower(7) is True and commits.is_slower(3) is slow


def test_an_undecided_bad_commit_is_not_called_fast() -> None:
    undecided = Row("spun/small", "undecided", "no GPU")
    result = command.Bisection("spun/small", ("a", "b"), ("", "b"), {"b": undecided}, None, 1e-3)
    assert result.exit_code == Exit.UNMEASURED and "undecided whether b is slower than a" in command.as_text(result)


def test_what_cannot_be_searched_is_refused(history: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for case, good, bad, message in (
        ("spun", "HEAD~2", "HEAD", "spun: expected a case"),
        ("spun/small", "HEAD", "HEAD~2", "expected an ancestor"),
        ("spun/small", "nothing", "HEAD", "nothing: expected a revision"),
        ("spun/small", "HEAD~2", "none", "none: expected a revision"),
    ):
        assert main(["bisect", case, good, bad, "--suite", "suite"]) == Exit.USAGE
        assert message in capsys.readouterr().err
    with pytest.raises(UsageError, match="an ancestor, and a later commit"):
        command.bisect(Settings("suite", variants=("spun",), shapes=("small",)), Options("HEAD"), "HEAD", print)
