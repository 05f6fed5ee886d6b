"""The formats for code hosts: each follows its published schema and says what the judgement says."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import gate
from flashcore.errors import Exit
from flashcore.features.formats import github
from flashcore.model.record import Record
from flashcore.pipeline import plugins
from flashcore.pipeline.judging import Rules, judge_record
from tests import factory
from tests.recorded import RECORDED
from tests.support.late import optional
from tests.support.verdicts import KINDS, TODAY, example, judged, places, suite, troubled

jsonschema = optional("jsonschema")
etree = optional("lxml.etree")

SCHEMAS = RECORDED / "schemas"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return troubled(tmp_path)


def render(form: str, record: Record) -> str:
    text: str = plugins.find("formats", form)(judged(record), record, places(record))
    return text.encode("utf-8", "replace").decode()


def workflow_commands(record: Record) -> str:
    return github.workflow_commands(judged(record), places(record))


@pytest.mark.parametrize("form", ["junit", "sarif", "gitlab", "github"])
def test_the_same_record_gives_the_same_text(form: str, record: Record) -> None:
    assert render(form, record) == render(form, record)
    assert render(form, record).endswith("\n")


@pytest.mark.parametrize("kind", KINDS)
def test_junit_is_valid(kind: str, tmp_path: Path) -> None:
    schema = etree.XMLSchema(etree.fromstring((SCHEMAS / "junit-10.xsd").read_bytes()))
    text = render("junit", example(kind, tmp_path))
    schema.assertValid(etree.fromstring(text.encode()))


def test_junit_counts_agree_with_the_judgement(record: Record) -> None:
    judgement = judged(record)
    top = etree.fromstring(render("junit", record).encode())
    counts = judgement.counts()
    assert int(top.get("failures")) == counts["fail"] == len(top.findall(".//failure"))
    assert int(top.get("errors")) == len(judgement.gaps) == len(top.findall(".//error"))
    assert int(top.get("tests")) == len(judgement.verdicts)
    assert "worse" not in etree.tostring(top, encoding="unicode")


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_is_valid(kind: str, tmp_path: Path) -> None:
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_bytes())
    text = render("sarif", example(kind, tmp_path))
    jsonschema.Draft4Validator(schema).validate(json.loads(text))


def test_sarif_holds_failures_gaps_and_suppressed_waivers(record: Record) -> None:
    run = json.loads(render("sarif", record))["runs"][0]
    fixes = [r["properties"]["advice"]["rule"] for r in run["results"] if "advice" in r["properties"]]
    assert fixes == ["spills"] * 2  # of registers, and of a spill on two archs
    (spill,) = [r for r in run["results"] if r["ruleId"] == "spill_store_bytes_limit"]
    named = [place["fullyQualifiedName"] for place in spill["locations"][0]["logicalLocations"]]
    assert sorted(named) == ["fast/fast_kernel (sm_80)", "fast/fast_kernel (sm_89)"]
    levels = [(r["ruleId"], r["level"], "suppressions" in r) for r in run["results"]]
    assert ("registers_limit", "error", False) in levels
    assert ("registers_limit", "error", True) in levels
    assert ("registers_limit", "warning", False) in levels
    assert run["invocations"][0]["exitCode"] == 1
    prints = [r["partialFingerprints"]["flashcoreVerdict/v1"] for r in run["results"]]
    assert len(set(prints)) == len(prints)
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]}
    assert "my%20kernels/fast.cu" in uris
    where = [r["locations"][0]["logicalLocations"][0] for r in run["results"]]
    kinds = {w["fullyQualifiedName"]: w["kind"] for w in where}
    assert kinds["fast/fast_kernel (sm_89)"] == "function" and kinds["split (sm_90a)"] == "module"


#: What GitLab requires of an issue (its documentation of Code Quality, "Code Quality report format").
CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": r"^[^/.]"},
                    "lines": {"required": ["begin"], "properties": {"begin": {"type": "integer", "minimum": 1}}},
                },
            },
        },
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_gitlabs_report_is_valid_and_empty_only_if_the_gate_passes(kind: str, tmp_path: Path) -> None:
    record = example(kind, tmp_path)
    issues = json.loads(render("gitlab", record))
    jsonschema.validate(issues, CODE_QUALITY)
    prints = [i["fingerprint"] for i in issues]
    assert len(set(prints)) == len(prints)
    assert bool([i for i in issues if i["severity"] != "info"]) == (judged(record).exit_code != 0)


def test_gitlabs_report_has_failures_gaps_and_waivers_at_their_lines(record: Record) -> None:
    issues = json.loads(render("gitlab", record))
    judgement = judged(record)
    counts = Counter(i["severity"] for i in issues)
    assert counts["major"] == len(judgement.failed) - 1  # a spill on two archs is one
    assert counts["info"] == len(judgement.waived) > 0
    assert counts["minor"] == len(judgement.unexplained_gaps) - 1 > 0  # of one reason on two shapes
    registers = [i for i in issues if i["check_name"] == "registers_limit" and i["severity"] == "major"]
    assert registers[0]["location"] == {"path": "my kernels/fast.cu", "lines": {"begin": 4}}
    assert "registers 140" in registers[0]["description"]
    failed = next(i for i in issues if i["check_name"] == "builds")
    assert failed["location"]["path"] == "my kernels/split.cu"


def test_gitlabs_report_of_a_gate_that_could_not_judge_is_not_empty(tmp_path: Path) -> None:
    record = factory.record(suite(tmp_path))
    judgement = dataclasses.replace(judged(record), verdicts=(), exit_code=Exit.INCAPABLE)
    issues = json.loads(plugins.find("formats", "gitlab")(judgement, record, places(record)))
    assert [(i["check_name"], i["severity"]) for i in issues] == [("gate", "major")]


def test_annotations_stand_on_the_line_that_is_to_blame(record: Record) -> None:
    lines = workflow_commands(record).splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert any(c.startswith("::error file=my kernels/fast.cu,line=4,") and "registers_limit" in c for c in commands)
    spill = [c for c in commands if "spill_store_bytes_limit" in c]
    # sm_80 has no site of its own: that of the same kernel for another arch is the best there is.
    assert [c.split(",")[1] for c in spill] == ["line=3"]
    assert "fast/fast_kernel (sm_80, sm_89)" in spill[0]
    assert any(c.startswith("::warning ") for c in commands)


def test_an_annotation_cannot_be_broken_out_of(tmp_path: Path) -> None:
    record = troubled(tmp_path)
    for line in workflow_commands(record).splitlines():
        if line.startswith("::"):
            head, _, data = line[2:].partition("::")
            assert not re.search(r"\r|\n|\x1b", data)
            assert head.count("title=") == 1
    text = workflow_commands(record)
    assert "%0Asecond line" in text or "second line" not in text


def test_more_annotations_than_are_shown_are_counted() -> None:
    variants = [factory.variant(f"v{i}") for i in range(30)]
    facts = [factory.fact("registers", 200, v.name, arch="sm_89", kernel=f"{v.name}_kernel") for v in variants]
    budgets = [factory.budget("registers", f"limit_{i}", variants=(f"v{i}",), maximum=128) for i in range(30)]
    record = factory.record(factory.suite(variants, budgets=budgets), facts)
    lines = workflow_commands(record).splitlines()
    assert len(lines) == github.MOST_ANNOTATIONS
    assert "21 more" in lines[-1]


def test_a_clean_judgement_annotates_nothing(tmp_path: Path) -> None:
    assert workflow_commands(factory.record(suite(tmp_path))) == ""


def test_a_failure_whose_sources_are_not_here_has_no_place() -> None:
    made = factory.suite(budgets=[factory.budget("registers", maximum=128)], root="/nowhere/kernels")
    record = factory.record(made, [factory.fact("registers", 140, "fast", arch="sm_89", kernel="fast_kernel")])
    assert "::error title=" in workflow_commands(record)


@pytest.mark.parametrize("count", [github.MOST_ANNOTATIONS, github.MOST_ANNOTATIONS + 2])
def test_an_annotation_counts_what_it_does_not_show(count: int, tmp_path: Path) -> None:
    made = factory.suite(
        [factory.variant("fast", archs=("sm_80",))], [factory.shape(f"s{i}") for i in range(count)],
        [factory.budget("blocks_per_sm", minimum=9)], root=str(tmp_path), archs=("sm_80",),
    )  # fmt: skip
    about: dict[str, Any] = {"arch": "sm_80", "kernel": "fast_kernel"}
    facts = [factory.fact("blocks_per_sm", i / 2, "fast", shape=f"s{i}", **about) for i in range(count)]
    text = workflow_commands(factory.record(made, facts))
    assert text.count("::error") == 1
    assert ("… and 2 more" in text) == (count > github.MOST_ANNOTATIONS)
    assert text.count("expected: ≥ 9") == github.MOST_ANNOTATIONS


def test_one_call_writes_annotations_their_summary_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, sarif = tmp_path / "summary.md", tmp_path / "out" / "gate.sarif"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = judge_record(Rules(compare=False, day=TODAY), troubled(tmp_path))
    gate.show(result, [("github", None), ("sarif", str(sarif))])
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert summary.read_text().startswith("before\n## ❌ flashcore gate")
    output = capsys.readouterr().out
    assert output.startswith("::error ") and "gate FAILED" in output
