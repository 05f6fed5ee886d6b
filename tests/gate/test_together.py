"""Runs on several chips, judged as one."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from flashcore.errors import Exit
from flashcore.gate import formats, judge
from flashcore.gate.formats import FORMATS
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.gate.together import chip_of, together
from flashcore.model.record import Record
from tests import factory

DAY = datetime.date(2026, 1, 1)
WAIVER = factory.waiver("slow_limit", 1000.0, variants=("slow",))
SUITE = factory.suite(
    budgets=[
        factory.budget("isolated_p50", "slow_limit", maximum=500.0, variants=("slow",)),
        factory.budget("isolated_p50", "fast_limit", maximum=100.0, variants=("fast",), shapes=("mission",)),
        factory.budget("registers", maximum=128),
    ],
    waivers=[WAIVER],
)
H200 = factory.record(SUITE)
L4 = factory.on_l4(H200)  # times are 10 times as long: 400 us of the 100 that are promised


def judged(*records: Record, **options: object) -> Judgement:
    return together(records, [judge.judge(r, today=DAY, **options) for r in records])  # type: ignore[arg-type]


def test_every_measured_verdict_names_its_chip_and_static_ones_alike_stand_once() -> None:
    alone, other = (judge.judge(r, today=DAY) for r in (H200, L4))
    both = judged(H200, L4)
    assert alone.exit_code is Exit.OK and other.exit_code is both.exit_code is Exit.FAILED
    missed = {str(v.subject) for v in both.failed}
    assert missed == {"fast/mission on NVIDIA L4", "slow/mission on NVIDIA L4", "slow/long on NVIDIA L4"}
    static = [v for v in both.verdicts if v.tier == "static"]
    assert static == [v for v in alone.verdicts if v.tier == "static"] and len(static) > 5
    measured = [v for v in both.verdicts if v.tier != "static"]
    assert {chip_of(v.subject) for v in measured} == {"NVIDIA H200", "NVIDIA L4"} == set(both.chips)
    assert len(measured) == sum(v.tier != "static" for j in (alone, other) for v in j.verdicts)
    assert [n.split(", run")[0] for n in both.notes[:2]] == ["NVIDIA H200", "NVIDIA L4"]
    assert "gate passed" in both.notes[0] and "gate FAILED" in both.notes[1]


def test_static_facts_that_differ_name_their_chips() -> None:
    spilled = factory.fact("registers", 200, "fast", arch="sm_80", kernel="fast_kernel")
    other = factory.on_l4(factory.record(SUITE, [spilled]))
    messages = [str(v.subject) for v in judged(H200, other).verdicts if v.budget == "registers_limit"]
    of_fast = [s for s in messages if s.startswith("fast/fast_kernel (sm_80)")]
    assert of_fast == ["fast/fast_kernel (sm_80) on NVIDIA H200", "fast/fast_kernel (sm_80) on NVIDIA L4"]


def test_a_waiver_that_is_exceeded_on_one_chip_is_exceeded() -> None:
    (use,) = judged(H200, L4).waivers
    assert [judge.judge(r, today=DAY).waivers[0].state for r in (H200, L4)] == ["not needed", "exceeded"]
    assert (use.waiver, use.state) == (WAIVER, "exceeded")


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((H200, factory.on_l4(H200, environment=replace(L4.environment, nvcc="12.8.0"))), Exit.FAILED),
        ((H200, factory.on_l4(factory.record(factory.suite()), environment=L4.environment)), Exit.OK),
        ((H200, factory.on_l4(factory.bare_record(SUITE, artifacts=()))), Exit.UNMEASURED),
        ((H200, replace(factory.on_l4(factory.record(factory.suite())),
                        environment=replace(L4.environment, nvcc="12.8.0"))), Exit.INCAPABLE),
    ],
)  # fmt: skip
def test_the_worst_exit_code_counts(records: tuple[Record, ...], code: Exit) -> None:
    assert judged(*records).exit_code is judged(*reversed(records)).exit_code is code


def test_every_format_names_the_chip_and_keeps_its_schema() -> None:
    both, places = judged(H200, L4), Places(H200, Path("."))
    texts = {form: render(both, H200, places) for form, render in FORMATS.items()}
    for form, text in texts.items():
        assert "fast/mission on NVIDIA L4" in text or form == "json", form
    parsed = json.loads(texts["json"])
    schema = json.loads(Path(formats.__file__).with_name("gate.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(parsed)
    assert parsed["gpu"] == "NVIDIA H200, NVIDIA L4" and parsed["exit_code"] == 1
    assert {v["subject"].get("chip") for v in parsed["verdicts"]} == {"NVIDIA H200", "NVIDIA L4", None}


def test_one_run_is_judged_as_ever() -> None:
    alone = judge.judge(L4, today=DAY)
    assert together([L4], [alone]) is alone and not alone.chips
