"""``flashcore bisect`` in a real repository, timed on the CPU, where callables run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.explain.comparison import Change, Difference, Outcome
from flashcore.explain.times import Speedup
from flashcore.features.compare import bisect
from flashcore.features.compare.against import AgainstOptions
from flashcore.features.compare.bisect import Bisection
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Facts
from flashcore.model.settings import Bench, Check, Settings
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.run import RecordedRun
from flashcore.records import store
from flashcore.stages.context import Context
from tests import factory
from tests.support.nights import run_of
from tests.support.repositories import git
from tests.support.spinning import SPIN, committed, spun

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def history(tmp_path: Path, compiler: toolchain.Nvcc, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Eight commits; the sixth doubles the work, others change comments or an unrelated file."""
    monkeypatch.chdir(tmp_path)
    folder = committed(tmp_path, SPIN)
    for number in range(1, 8):
        if number == 5:
            spun(folder, 4000)
        references = folder / "peers.py"
        references.write_text(references.read_text() + f"# {number}\n")
        git(tmp_path, "commit", "-qam", f"number {number}")
    return git(tmp_path, "log", "--reverse", "--format=%H").split()


def counted(context: Context) -> RecordedRun:
    """A recorded run that counted the case: more bytes, and registers, in commits that double the work."""
    slow = "4000" in Path(context.suite.root, "loops.py").read_text()
    suite = factory.suite([factory.variant("spun")], [factory.shape("small")], baseline="spun")
    base = factory.record(suite)
    values = {"dram_bytes": 1000.0 * (1 + slow), "registers": 40 + slow}
    facts = [replace(f, value=values[f.name]) if f.name in values else f for f in base.facts]
    record = replace(base, id=run_of(slow), facts=Facts(facts))
    store.write(record, folder := store.begin(Path(context.settings.profiles), record.id))
    return RecordedRun(record, store.complete(folder), context.settings)


def test_the_commit_that_doubled_the_work_is_named(history: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("suite", variants=("spun",), shapes=("small",), bench=Bench(samples=30), check=Check(repeats=2))
    chosen = AgainstOptions(history[0], processes=4, device="cpu")
    result = bisect.bisect(settings, chosen, "HEAD", print)
    assert result.exit_code == Exit.OK and [*result.rows] == [7], "timed once"
    text = bisect.as_text(result)
    assert f"first slow commit: {history[5][:12]} number 5" in text and "confidence at least 99.9 %" in text
    data = json.loads(bisect.as_json(result))
    assert data["first_slow"] == history[5] and data["last_fast"] == history[4]
    assert data["counters"] is None and "counters: unmeasured" in text
    assert not Path("profiles").exists(), "an old commit's run is no night of the trend"
    monkeypatch.setattr(pipeline, "run", counted)
    text = bisect.as_text(bisect.bisect(settings, chosen, "HEAD", print))
    assert "counters: dram_bytes 1,000 B → 2,000 B" in text and "static facts: registers 40 → 41\n" in text
    fine = bisect.bisect(settings, chosen, history[4], print)
    assert not fine.bad and fine.exit_code == Exit.OK and "nothing to search" in bisect.as_text(fine)


CASE = CaseSubject(Case("v", "s"))


class Written:
    """Commits whose machine code changes in each of ``edits``; those from ``slow`` on are slow."""

    def __init__(self, slow: int, edits: Collection[int], broken: Collection[int] = (), noisy: Collection[int] = ()):
        self.slow, self.edits, self.broken, self.noisy = slow, sorted(edits), broken, noisy

    def work(self, number: int) -> object | None:
        return None if number in self.broken else sum(edit <= number for edit in self.edits)

    def compared(self, number: int) -> Difference:
        return Difference(
            CASE, "undecided" if number in self.noisy else "slower" if number >= self.slow else "no difference"
        )

    def say(self, text: str) -> None:
        pass

    def measured(self, number: int) -> None:
        pass


def searched(commits: Any, last: int = 32) -> Bisection:
    result = Bisection(Case("v", "s"), [f"{n:040}" for n in range(last + 1)], ["subject"] * (last + 1), 1e-3)
    bisect.search(result, commits)
    return result


@pytest.mark.parametrize("slow", range(1, 33))
def test_of_32_commits_at_most_6_are_timed(slow: int) -> None:
    result = searched(Written(slow, range(1, 33)))
    assert (result.good, result.bad) == (slow - 1, slow) and len(result.rows) <= 6
    assert result.exit_code == Exit.OK


def test_commits_with_their_neighbors_machine_code_are_not_timed() -> None:
    result = searched(Written(20, edits=(5, 20, 28)))
    assert (result.good, result.bad) == (19, 20)
    assert len(result.rows) <= 3, "four versions of the code: two of them between good and bad"
    only = searched(Written(20, edits=(20,)))
    assert only.bad == 20 and [*only.rows] == [32], "the code changed once: it is that commit"


def test_what_is_not_slower_is_not_searched() -> None:
    result = searched(Written(slow=99, edits=range(1, 33)))
    assert [*result.rows] == [32] and result.bad == 0 and result.exit_code == Exit.OK
    undecided = searched(Written(slow=99, edits=(), noisy=(32,)))
    assert undecided.exit_code == Exit.UNMEASURED and "undecided whether 0" in bisect.as_text(undecided)


def test_commits_that_do_not_build_or_decide_are_left_as_candidates() -> None:
    result = searched(Written(10, range(1, 33), broken=(9, 10), noisy=(11,)))
    assert (result.good, result.bad) == (8, 12) and result.exit_code == Exit.UNMEASURED
    assert bisect.as_text(result).count("not decided: ") == 3
    assert searched(Written(3, range(1, 33), broken=(16, 17))).bad == 3


@pytest.mark.parametrize(("change", "slow"), [(0.001, False), (0.012, None)])
def test_a_commit_that_may_be_as_slow_as_the_last_one_is_not_called_fast(change: float, slow: bool | None) -> None:
    """With noise of 2 %, a commit that is slower by 1.2 % may be slower by 3 % like the last one."""

    def timed(outcome: Outcome, change: float) -> Difference:
        ratio = Speedup(1 / (1 + change))
        return Difference(CASE, outcome, (Change(CASE, "isolated_p50", "us", 1, 1, outcome, "processes", ratio, 0.02),))

    rows = {2: timed("slower", 0.03), 1: timed("no difference", change)}
    result = Bisection(Case("v", "s"), ("a", "b", "c"), ("", "", ""), 1e-3, rows)
    assert result.is_slower(2) is True and result.is_slower(1) is slow


def test_a_commit_at_an_end_that_lacks_the_case_is_named(
    history: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "mv", "suite", "moved")
    git(tmp_path, "commit", "-qm", "moved")
    assert main(["bisect", "spun/small", history[0], "HEAD", "--suite", "moved", "-q"]) == Exit.USAGE
    message = capsys.readouterr().err
    assert history[0][:12] in message and "expected the suite moved in it" in message


def test_what_cannot_be_searched_is_refused(history: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for case, good, bad, message in (
        ("spun", "HEAD~2", "HEAD", "spun: expected VARIANT/SHAPE"),
        ("sp*/small", "HEAD~2", "HEAD", "sp*/small: expected VARIANT/SHAPE"),
        ("spunn/small", "HEAD~2", "HEAD", "(did you mean spun?)"),
        ("spun/smal", "HEAD~2", "HEAD", "(did you mean small?)"),
        ("spun/small", "HEAD", "HEAD~2", "expected an ancestor"),
        ("spun/small", "nothing", "HEAD", "nothing: expected a revision"),
        ("spun/small", "HEAD~2", "none", "none: expected a revision"),
    ):
        assert main(["bisect", case, good, bad, "--suite", "suite"]) == Exit.USAGE
        assert message in capsys.readouterr().err
    with pytest.raises(UsageError, match="an ancestor, and a later commit"):
        bisect.bisect(Settings("suite", variants=("spun",), shapes=("small",)), AgainstOptions("HEAD"), "HEAD", print)
