"""The formats for code hosts: each follows its published schema and says what the judgement says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import gate
from flashcore.features.formats import github
from flashcore.model.record import Record
from flashcore.pipeline import plugins
from flashcore.pipeline.judging import Rules, judge_record
from tests import factory
from tests.recorded import RECORDED
from tests.support.verdicts import KINDS, TODAY, example, judged, places, suite, troubled

etree = pytest.importorskip("lxml.etree")

SCHEMAS = RECORDED / "schemas"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return troubled(tmp_path)


def render(form: str, record: Record) -> str:
    text: str = plugins.find("formats", form)(judged(record), record, places(record))
    return text.encode("utf-8", "replace").decode()


def workflow_commands(record: Record) -> str:
    return github.workflow_commands(judged(record), places(record))


@pytest.mark.parametrize("form", ["junit", "github"])
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
    summary, junit = tmp_path / "summary.md", tmp_path / "out" / "gate.xml"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = judge_record(Rules(compare=False, day=TODAY), troubled(tmp_path))
    gate.show(result, [("github", None), ("junit", str(junit))])
    assert etree.parse(junit).getroot().tag == "testsuites"
    assert summary.read_text().startswith("before\n## ❌ flashcore gate")
    output = capsys.readouterr().out
    assert output.startswith("::error ") and "gate FAILED" in output
