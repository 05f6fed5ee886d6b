"""The gate's outputs: each held to its published schema, and each saying what the judgement says."""

from __future__ import annotations

import gzip
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import Exit
from flashcore.gate import formats, judge
from flashcore.gate.formats import FORMATS, github, markdown
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.causes import SourceLine
from flashcore.model.record import Record
from flashcore.model.suite import Suite
from tests import factory
from tests.conftest import TESTS

jsonschema = pytest.importorskip("jsonschema")
etree = pytest.importorskip("lxml.etree")

SCHEMAS = TESTS / "data" / "schemas"
TODAY = date(2026, 6, 1)
SOURCE = """#include <common.cuh>
// fast_kernel( of a comment is no definition
extern "C" __global__ void __launch_bounds__(256)
    fast_kernel(const float* x) {
}
void launch() { fast_kernel<<<1, 1>>>(nullptr); }
"""
NASTY = 'a]]> & <b> "c" | 100 %, \x1b[31mred\x1b[0m \x00 \ud800 日本\nsecond line'


def suite(root: Path, **changes: Any) -> Suite:
    root.mkdir(parents=True, exist_ok=True)
    (root / ".git").mkdir(exist_ok=True)
    folder = root / "my kernels"
    folder.mkdir(exist_ok=True)
    (folder / "fast.cu").write_text(SOURCE)
    (folder / "common.cuh").write_text("\n\n__global__ void slow_kernel(\nint) {}\n")
    (folder / "slow.cu").write_text('#include "common.cuh"\n')
    (folder / "suite.toml").write_text('name = "x"\n\n[variant.split]\nsource = "split.cu"\n')
    budgets = [
        factory.budget("registers", maximum=128),
        factory.budget("spill_store_bytes", maximum=0),
        factory.budget("theoretical_occupancy", minimum=10),
        factory.goal("tensor_active", minimum=60),
    ]
    return factory.suite(budgets=budgets, root=str(folder), **changes)


def troubled(root: Path) -> Record:
    """A record with a failure of each kind, a waived miss, a gap, an open goal and hostile texts."""
    waiver = factory.waiver("registers_limit", 160, variants=("slow",), reason=f"known: {NASTY}", expires="2027-01-01")
    facts = [
        factory.fact("registers", 140, "fast", arch="sm_89", kernel="fast_kernel"),
        factory.fact("registers", 150, "slow", arch="sm_89", kernel="slow_kernel"),
        factory.fact("spill_store_bytes", 8, "fast", arch="sm_80", kernel="fast_kernel"),
        factory.fact("spill_store_bytes", 8, "fast", arch="sm_89", kernel="fast_kernel"),
        factory.site(SourceLine("common.cuh", 3)),
        factory.fact("registers", None, "split", arch="sm_90a", kernel="split_kernel", detail=f"no cubin: {NASTY}"),
    ]
    made = suite(root, waivers=[waiver])
    failed = factory.artifact("split", "sm_90a", "failed", f"split.cu(7): error: {NASTY}")
    return factory.record(made, facts, artifacts=(*factory.artifacts(made)[:-1], failed))


def judged(record: Record) -> Judgement:
    return judge.judge(record, today=TODAY)


def places(record: Record) -> Places:
    """Relative to the folder that the suite's folder lies in."""
    return Places(record, Path(record.suite.root).parent)


def render(form: str, record: Record) -> str:
    text = FORMATS[form](judged(record), record, places(record))
    return text.encode("utf-8", "replace").decode()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return troubled(tmp_path)


# --- each schema --------------------------------------------------------------------------------


@pytest.fixture(params=["troubled", "clean", "bare"])
def any_record(request: pytest.FixtureRequest, tmp_path: Path) -> Record:
    if request.param == "troubled":
        return troubled(tmp_path)
    made = suite(tmp_path)
    return factory.record(made) if request.param == "clean" else factory.bare_record(made)


def test_junit_is_valid(any_record: Record) -> None:
    schema = etree.XMLSchema(etree.fromstring((SCHEMAS / "junit-10.xsd").read_bytes()))
    text = render("junit", any_record)
    schema.assertValid(etree.fromstring(text.encode()))


def test_sarif_is_valid(any_record: Record) -> None:
    schema = json.loads(gzip.decompress((SCHEMAS / "sarif-2.1.0.json.gz").read_bytes()))
    text = render("sarif", any_record)
    jsonschema.Draft4Validator(schema).validate(json.loads(text))


def test_json_is_valid(any_record: Record) -> None:
    schema = json.loads(Path(formats.__file__).with_name("gate.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    text = render("json", any_record)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_record_gives_the_same_text(form: str, record: Record) -> None:
    one, other = (render(form, record) for _ in range(2))
    assert one == other
    assert one.endswith("\n")


# --- what they say ------------------------------------------------------------------------------


def test_junit_counts_agree_with_the_judgement(record: Record) -> None:
    judgement = judged(record)
    top = etree.fromstring(render("junit", record).encode())
    counts = judgement.counts()
    assert int(top.get("failures")) == counts["fail"] == len(top.findall(".//failure"))
    assert int(top.get("errors")) == len(judgement.gaps) == len(top.findall(".//error"))
    assert int(top.get("tests")) == len(judgement.verdicts)
    assert "worse" not in etree.tostring(top, encoding="unicode")


def test_sarif_holds_failures_gaps_and_suppressed_waivers(record: Record) -> None:
    run = json.loads(render("sarif", record))["runs"][0]
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


def test_annotations_stand_on_the_line_that_is_to_blame(record: Record) -> None:
    lines = render("github", record).splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert any(c.startswith("::error file=my kernels/fast.cu,line=4,") and "registers_limit" in c for c in commands)
    spill = [c for c in commands if "spill_store_bytes_limit" in c]
    # sm_80 has no site of its own: that of the same kernel for another arch is the best there is.
    assert [c.split(",")[1] for c in spill] == ["line=3"]
    assert "fast/fast_kernel (sm_80)" in spill[0] and "fast/fast_kernel (sm_89)" in spill[0]
    assert any(c.startswith("::warning ") for c in commands)


def test_an_annotation_cannot_be_broken_out_of(tmp_path: Path) -> None:
    record = troubled(tmp_path)
    for line in render("github", record).splitlines():
        if line.startswith("::"):
            head, _, data = line[2:].partition("::")
            assert not re.search(r"\r|\n|\x1b", data)
            assert head.count("title=") == 1
    text = render("github", record)
    assert "%0Asecond line" in text or "second line" not in text


def test_more_annotations_than_are_shown_are_counted() -> None:
    variants = [factory.variant(f"v{i}") for i in range(30)]
    facts = [factory.fact("registers", 200, v.name, arch="sm_89", kernel=f"{v.name}_kernel") for v in variants]
    budgets = [factory.budget("registers", f"limit_{i}", variants=(f"v{i}",), maximum=128) for i in range(30)]
    record = factory.record(factory.suite(variants, budgets=budgets), facts)
    lines = render("github", record).splitlines()
    assert len(lines) == github.MOST_ANNOTATIONS
    assert "21 more" in lines[-1]


def test_a_clean_judgement_annotates_nothing(tmp_path: Path) -> None:
    record = factory.record(suite(tmp_path))
    judgement = judged(record)
    assert judgement.exit_code is Exit.OK
    assert render("github", record) == ""
    assert "✅" in render("markdown", record)


def test_markdown_names_failures_waivers_and_reasons(record: Record) -> None:
    text = render("markdown", record)
    assert "❌" in text and "`my kernels/fast.cu:4`" in text
    assert "### Loosened in the manifest" in text and "2027-01-01" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (7,) for row in rows)


def test_markdown_is_bounded() -> None:
    facts = [factory.fact("registers", 200, f"v{i}", arch="sm_90a", kernel=f"v{i}_kernel") for i in range(300)]
    suite = factory.suite([factory.variant(f"v{i}", archs=("sm_90a",)) for i in range(300)],
                          budgets=[factory.budget("registers", maximum=128)], archs=("sm_90a",))  # fmt: skip
    record = factory.bare_record(suite, facts)
    text = render("markdown", record)
    assert text.count("registers\\_limit") == markdown.MOST_ROWS
    assert "… and 200 more" in text
    assert markdown._cell("a" * 300) == "a" * 300
    assert markdown._cell("a" * 301) == "a" * 297 + "…"


def test_the_summary_counts_goals_and_what_is_left_out(record: Record) -> None:
    from flashcore.gate.wording import summary

    judgement = judged(record)
    assert judgement.left_out and "1 of 8 goals reached" not in summary(judgement)
    said = summary(judgement)
    goals = judgement.counts("goal")["pass"]
    assert (
        f"; {goals} of {len(judgement.goals)} goals reached; {judgement.left_out} unsupported left out (exit 1)" in said
    )
    bare = judge.judge(factory.bare_record(factory.suite([factory.variant("slow")])), today=TODAY)
    assert "goals" not in summary(bare) and "left out" not in summary(bare)


@pytest.mark.parametrize("count", [github.MOST_ANNOTATIONS, github.MOST_ANNOTATIONS + 2])
def test_an_annotation_counts_what_it_does_not_show(count: int, tmp_path: Path) -> None:
    made = factory.suite(
        [factory.variant("fast", archs=("sm_80",))], [factory.shape(f"s{i}") for i in range(count)],
        [factory.budget("blocks_per_sm", minimum=9)], root=str(tmp_path), archs=("sm_80",),
    )  # fmt: skip
    text = render("github", factory.record(made))
    assert text.count("::error") == 1
    assert ("… and 2 more" in text) == (count > github.MOST_ANNOTATIONS) and text.count(
        "promised"
    ) == github.MOST_ANNOTATIONS


def test_a_verdict_in_words_has_its_value_where_there_is_one(record: Record) -> None:
    from flashcore.gate.wording import sentence

    said = {v.budget: sentence(v) for v in judged(record).failed}
    assert said["registers_limit"].startswith("fast/fast_kernel (sm_89): registers 140, promised ≤ 128 (")
    assert said["builds"].startswith("split (sm_90a): builds, promised compiles (every variant): split.cu(7): error")
