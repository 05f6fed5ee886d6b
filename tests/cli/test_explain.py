"""``flashcore explain``: the advice on a recorded run, as a table and as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.record import Record
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
