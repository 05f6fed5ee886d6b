"""``flashcore compare``: the two sides that it compares."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli import main
from flashcore.cli.comparison import as_json, as_text
from flashcore.errors import Exit, UsageError
from flashcore.explain import compare_records
from flashcore.explain.compare_records import compare
from flashcore.features.compare import sides
from flashcore.model.case import Case
from flashcore.model.record import Facts, Record
from flashcore.model.settings import Settings
from flashcore.records import store
from flashcore.suites.load import NothingMatches, select
from tests import factory
from tests.support.repositories import git

BEFORE = factory.record(factory.suite([factory.variant("slow")]))
AFTER = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")]))


def arguments(*words: str) -> argparse.Namespace:
    return main.parser(["compare"]).parse_args(["compare", *words])


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """The sides that were made, and their variants: ``before`` and ``after`` are runs."""
    made: list[tuple[str, tuple[str, ...]]] = []

    def record(name: str, kind: sides.SideKind, settings: Settings, say: object) -> Record:
        made.append((name, settings.variants))
        result = {"before": BEFORE, "after": AFTER}[name]
        select(result.suite, settings.variants)
        return result

    monkeypatch.setattr(sides, "record", record)
    monkeypatch.setattr(sides, "kind", lambda *_: "run")
    return made


def test_of_a_variant_that_one_side_lacks_the_other_is_made_as_a_whole(
    requested: list[tuple[str, tuple[str, ...]]],
) -> None:
    a, b = sides.records(arguments("before", "after", "--variant", "fast"), print)
    assert requested == [("before", ("fast",)), ("after", ("fast",)), ("before", ())]
    assert not a.facts.of("fast") and b.facts.of("fast") and not b.facts.of("slow")


def test_a_variant_that_both_lack_is_wrong_usage(requested: list[tuple[str, tuple[str, ...]]]) -> None:
    with pytest.raises(NothingMatches, match=r"\(did you mean fast\?\)"):
        sides.records(arguments("before", "after", "--variant", "fats"), print)


def test_a_name_means_a_run_then_a_file_then_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "profiles" / AFTER.id
    folder.mkdir(parents=True)
    store.write(AFTER, folder)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    for name in ("branch", "lib.so", "a.run.zip", "step.ncu-rep", "raw.csv.gz", "a.tar.gz", "kernels/one.cubin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    git(tmp_path, "branch", "branch")
    means = {
        ".": "working tree",
        AFTER.id[:12]: "run",
        f"profiles/{AFTER.id}": "run",
        "branch": "compiled files",
        "heads/branch": "revision",
        "HEAD": "revision",
        "lib.so": "compiled files",
        "*/*.cubin": "compiled files",
        "kernels/**/*.cubin": "compiled files",
        "kernels": "compiled files",
        "step.ncu-rep": "report",
        "raw.csv.gz": "report",
        "a.tar.gz": "compiled files",
    }
    assert {name: sides.kind(name, arguments(name)) for name in means} == means
    assert sides.kind("a.run.zip", arguments("a.run.zip")) == "run"
    for name in ("nothing", "--help", "HEAD~9", ""):
        expected = f"^{name}: expected a run's id or folder, .* none of them \\(newest runs: {AFTER.id}\\)"
        with pytest.raises(UsageError, match=expected):
            sides.kind(name, argparse.Namespace(**vars(arguments("x")) | {"a": name}))


def test_two_reports_are_compared_without_importing_them(
    sample_reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    report = str(sample_reports / "app_basic.ncu-rep")
    assert main.main(["compare", report, report]) == Exit.OK
    assert "4 no difference" in capsys.readouterr().out and not Path("profiles").exists()


def test_the_json_has_the_values_of_the_table() -> None:
    def record(run: str, registers: int, gpu: str) -> Record:
        one = factory.record(environment=factory.environment(gpu=gpu))
        facts = [*one.facts, factory.fact("registers", registers, "fast", arch="sm_90a", kernel="k")]
        samples = {(Case("fast", "mission"), "isolated"): (2.0, 2.1, 2.2)}
        return replace(one, id=run, facts=Facts(facts), raw_samples=samples)

    a, b = record("one", 90, "NVIDIA H200"), record("two", 80, "NVIDIA H200")
    parsed = json.loads(as_json(compare(a, b)))
    assert (parsed["before"]["name"], parsed["after"]["gpu"]) == ("one", "NVIDIA H200")
    (change,) = compare_records.changes(a, b)
    time, *_ = (row for row in parsed["rows"] if (row["variant"], row["shape"]) == ("fast", "mission"))
    (static,) = (row for row in parsed["rows"] if row["shape"] is None)
    assert (static["variant"], static["kernel"], static["outcome"]) == ("fast", "k", "better")
    (fact,) = static["changes"]
    assert (fact["fact"], fact["before"], fact["after"], fact["evidence"]) == ("registers", 90, 80, "exact")
    assert change.outcome == fact["outcome"] == "better"
    lead = time["changes"][0]
    assert (time["shape"], lead["fact"], time["judged"]) == ("mission", "isolated_p50", False)
    assert lead["ratio"] == lead["before"] / lead["after"]
    assert lead["low"] is None and "different runs" in lead["no_interval"] and parsed["incomparable"] is None
    other = json.loads(as_json(compare(a, record("two", 80, "NVIDIA L4"))))
    assert other["incomparable"] == "measured on NVIDIA H200, not NVIDIA L4"
    assert [row["shape"] for row in other["rows"]] == [None]


def test_runs_of_different_suites_are_called_so() -> None:
    other = replace(AFTER, suite=replace(AFTER.suite, name="roofs"))
    assert "note: times are not comparable: of suite attention, not roofs" in as_text(compare(BEFORE, other))
    assert "of suite" not in as_text(compare(BEFORE, AFTER))
