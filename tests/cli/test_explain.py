"""``flashcore explain``: the advice on a recorded run, as a table and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.record import Facts, Record, Source
from flashcore.records import store
from tests import factory


def save(record: Record, profiles: Path) -> None:
    (profiles / record.id).mkdir()
    store.write(record, profiles / record.id)


@pytest.fixture
def profiles(tmp_path: Path) -> list[str]:
    spilled = factory.fact("spill_store_bytes", 8, "fast", arch="sm_90a", kernel="fast_kernel")
    save(factory.record(facts=[spilled], times={"slow": 20.0, "fast": 10.0, "split": 15.0}), tmp_path)
    return ["--profiles", str(tmp_path)]


def test_the_fastest_variant_of_each_shape_is_advised_on(
    profiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *profiles]) == Exit.OK
    text = capsys.readouterr().out
    assert "keep fewer values live" in text and "fast/mission" in text and "fast/long" in text and "slow" not in text


def test_data_has_what_programs_need(profiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *profiles, "--format", "json", "--variant", "fast", "--shape", "mission"]) == Exit.OK
    [item] = [x for x in json.loads(capsys.readouterr().out)["advice"] if x["rule"] == "spills"]
    assert item["subject"] == {"variant": "fast", "arch": "sm_90a", "shape": "mission", "kernel": "fast_kernel"}
    assert item["evidence"]["spill_store_bytes"] == {"value": 8, "unit": "B"}


def test_a_shape_that_was_not_timed_is_advised_on_only_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spilled = factory.fact("spill_store_bytes", 8, "fast", arch="sm_90a", kernel="fast_kernel")
    record = factory.record(facts=[spilled], times={"slow": 20.0, "fast": 10.0, "split": 15.0})
    timed = [f for f in record.facts if not (f.subject.shape == "long" and f.source is Source.EVENTS)]
    samples = {key: x for key, x in record.samples.items() if "/mission/" in key}
    save(replace(record, facts=Facts(timed), samples=samples), tmp_path)
    shown = {}
    for words in ((), ("fast/long",)):
        assert main(["explain", *words, "--profiles", str(tmp_path)]) == Exit.OK
        shown[words] = capsys.readouterr().out
    assert "fast/mission" in shown[()] and "/long" not in shown[()] and "fast/long" in shown["fast/long",]


def test_a_case_selects_its_advice(profiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "fast/mission", *profiles]) == Exit.OK
    cases = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert {*cases} == {"fast/mission"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("RUN --brief", "--brief: expected a case, VARIANT/SHAPE, after the run, found RUN"),
        ("a b", "expected a run, and after it a case, VARIANT/SHAPE; found a, b"),
        ("--format markdown", "--format: expected table or json, found markdown"),
        ("fast/mission --brief --format table", "--format: expected markdown or json, with --brief, found table"),
    ],
)
def test_wrong_words_are_told_what_is_expected(
    words: str, error: str, profiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words.split(), *profiles]) == Exit.USAGE
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--variant", "--shape"])
def test_a_name_that_matches_nothing_is_wrong_usage(
    option: str, profiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *profiles, option, "fsat"]) == Exit.USAGE
    assert f"{option} fsat: expected" in capsys.readouterr().err


def test_without_a_rule_that_applies_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(factory.bare_record(), tmp_path)
    assert main(["explain", "--profiles", str(tmp_path)]) == Exit.OK
    assert "no rule applies" in capsys.readouterr().out
