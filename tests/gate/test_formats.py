"""The gate's outputs: each held to its published schema, and each saying what the judgement says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flashcore.errors import Exit
from flashcore.gate import formats, judge
from flashcore.gate.formats import FORMATS
from flashcore.gate.wording import sentence
from flashcore.model.record import Record
from tests import factory
from tests.support.late import optional
from tests.support.verdicts import KINDS, TODAY, example, judged, places, suite, troubled

jsonschema = optional("jsonschema")


def render(form: str, record: Record) -> str:
    text = FORMATS[form](judged(record), record, places(record))
    return text.encode("utf-8", "replace").decode()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return troubled(tmp_path)


# --- each schema --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_json_is_valid(kind: str, tmp_path: Path) -> None:
    schema = json.loads(Path(formats.__file__).with_name("gate.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    text = render("json", example(kind, tmp_path))
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_record_gives_the_same_text(form: str, record: Record) -> None:
    one, other = (render(form, record) for _ in range(2))
    assert one == other
    assert one.endswith("\n")


# --- what they say ------------------------------------------------------------------------------


def test_a_clean_judgement_passes(tmp_path: Path) -> None:
    record = factory.record(suite(tmp_path))
    assert judged(record).exit_code is Exit.OK
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
    assert text.count("registers\\_limit") == formats.MOST_ROWS
    assert "… and 200 more" in text
    assert formats.escaped("a" * 300) == "a" * 300
    assert formats.escaped("a" * 301) == "a" * 297 + "…"


def test_the_summary_counts_goals_and_what_is_left_out(record: Record) -> None:
    from flashcore.gate.wording import summary

    judgement = judged(record)
    assert judgement.left_out and "1 of 8 goals reached" not in summary(judgement)
    message = summary(judgement)
    goals = judgement.counts("goal")["pass"]
    assert (
        f"; {goals} of {len(judgement.goals)} goals reached; {judgement.left_out} unsupported left out (exit 1)"
        in message
    )
    bare = judge.judge(factory.bare_record(factory.suite([factory.variant("slow")])), today=TODAY)
    assert "goals" not in summary(bare) and "left out" not in summary(bare)


def test_a_verdict_in_words_has_its_value_where_there_is_one(record: Record) -> None:
    from flashcore.gate.wording import sentence

    messages = {v.budget: sentence(v) for v in judged(record).failed}
    assert messages["registers_limit"].startswith("fast/fast_kernel (sm_89): registers 140, expected: ≤ 128 (")
    assert messages["builds"].startswith(
        "split (sm_90a): builds, expected: it compiles (every variant): split.cu(7): error"
    )


def test_a_missed_limit_comes_with_the_change_that_mends_it(record: Record) -> None:
    missed = next(v for v in judged(record).failed if v.fact == "spill_store_bytes" and v.subject.arch == "sm_89")
    assert missed.advice and missed.advice.rule == "spills"
    assert "fix: keep fewer values live" in sentence(missed)
    verdicts = json.loads(render("json", record))["verdicts"]
    items = [v["advice"] for v in verdicts if "advice" in v]
    assert [x["evidence"]["spill_store_bytes"] for x in items] == [{"value": 8, "unit": "B"}] * 3
    assert all(v["status"] == "fail" for v in verdicts if "advice" in v)
