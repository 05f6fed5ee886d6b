"""``flashcore explain``: the advice on a recorded run, as a table and as data."""

from __future__ import annotations

import json
import re
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


def test_a_shape_that_was_not_timed_is_advised_on_only_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spilled = factory.fact("spill_store_bytes", 8, "fast", arch="sm_90a", kernel="fast_kernel")
    record = factory.record(facts=[spilled], times={"slow": 20.0, "fast": 10.0, "split": 15.0})
    timed = [f for f in record.facts if not (f.subject.shape == "long" and f.source is Source.EVENTS)]
    samples = {key: x for key, x in record.samples.items() if "/mission/" in key}
    save(replace(record, facts=Facts(timed), raw_samples=samples), tmp_path)
    shown = {}
    for words in ((), ("fast/long",)):
        assert main(["explain", *words, "--profiles", str(tmp_path)]) == Exit.OK
        shown[words] = capsys.readouterr().out
    assert "fast/mission" in shown[()] and "/long" not in shown[()] and "fast/long" in shown["fast/long",]


def test_a_case_selects_its_advice(profiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "fast/mission", *profiles]) == Exit.OK
    cases = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r"\w+/\w+ ", line)]
    assert {*cases} == {"fast/mission"}


@pytest.mark.parametrize("option", ["--variant=slow", "--shape=long", "--variant=fast"])
def test_a_case_beside_a_selection_is_refused(
    option: str, profiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "fast/mission", option, *profiles]) == Exit.USAGE
    assert "expected a case or --variant/--shape, found both" in capsys.readouterr().err
    assert main(["explain", option, *profiles]) == Exit.OK


def test_advice_on_several_kernels_of_a_case_names_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = ("split_kernel", "split_combine")
    spilled = [
        factory.fact("spill_store_bytes", 8 * i, "split", arch="sm_90a", kernel=kernel)
        for i, kernel in enumerate(kernels, 1)
    ]
    save(factory.record(facts=spilled, times={"slow": 20.0, "split": 10.0}), tmp_path)
    assert main(["explain", "split/mission", "--profiles", str(tmp_path)]) == Exit.OK
    spills = [line for line in capsys.readouterr().out.splitlines() if "keep fewer values live" in line]
    assert sorted(line.split()[0] for line in spills) == ["split/mission/split_combine", "split/mission/split_kernel"]


def test_the_newest_run_that_has_the_case_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {"slow": 20.0, "fast": 10.0, "split": 15.0}
    save(replace(factory.record(times=times), id="20260101T000000Z-0001"), tmp_path)
    other = replace(factory.suite([factory.variant("slow"), factory.variant("other")]), name="decode")
    save(replace(factory.record(other, times={"slow": 20.0, "other": 10.0}), id="20260102T000000Z-0001"), tmp_path)
    for words in ("explain fast/mission", "explain fast/mission --brief", "facts --variant fast --shape mission"):
        assert main([*words.split(), "--profiles", str(tmp_path), "--format", "json"]) == Exit.OK
        assert json.loads(capsys.readouterr().out)["run"] == "20260101T000000Z-0001", words
    assert main(["facts", "--variant", "slow", "--profiles", str(tmp_path), "--format", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["run"] == "20260102T000000Z-0001", "both have it"
    assert main(["explain", "fsat/mission", "--profiles", str(tmp_path)]) == Exit.USAGE
    assert "expected a glob matching one of slow, other" in capsys.readouterr().err


def test_facts_of_several_variants_and_shapes_and_of_one_arch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(factory.record(times={"slow": 20.0, "fast": 10.0, "split": 15.0}), tmp_path)

    def facts(words: str) -> list[dict[str, str | None]]:
        assert main(["facts", *words.split(), "--profiles", str(tmp_path), "--format", "json"]) == Exit.OK
        shown: list[dict[str, str | None]] = json.loads(capsys.readouterr().out)["facts"]
        return shown

    every = facts("")
    some = facts("--variant slow --variant fa* --shape mission --arch 9.0")
    assert some == [
        f
        for f in every
        if f["variant"] in ("slow", "fast") and f["shape"] in (None, "mission") and f["arch"] in (None, "sm_90a")
    ]
    assert {f["variant"] for f in some} == {"slow", "fast"} and len(some) < len(every)
    assert facts("--shape long --shape mission --variant slow --variant fast --variant split") == [
        f for f in every if f["variant"] in ("slow", "fast", "split") and f["shape"] in (None, "mission", "long")
    ]


def test_a_shape_that_is_only_checked_has_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spilled = factory.fact("spill_store_bytes", 8, "fast", arch="sm_90a", kernel="fast_kernel")
    long = factory.shape("long", {"B": 1, "H": 8, "S": 2048, "D": 64}, ["check"])
    record = factory.record(factory.suite(shapes=[factory.shape("mission"), long]), [spilled])
    static = Facts(f for f in record.facts if f.subject.arch)
    save(replace(record, facts=static, raw_samples={}, environment=factory.environment(gpu=None)), tmp_path)
    for words, shown in {"": ["mission"], "--variant fast": ["mission"], "fast/long": []}.items():
        assert main(["explain", *words.split(), "--profiles", str(tmp_path)]) == Exit.OK
        text = capsys.readouterr().out
        assert [name for name in ("mission", "long") if f"fast/{name} " in text] == shown
    assert "only checked: long" in text
