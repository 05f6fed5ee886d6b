"""Facts held to a baseline: what got worse, how much of it is allowed, and what rules and waivers change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import text_tables
from flashcore.errors import Exit
from flashcore.gate import baseline, judge
from flashcore.gate.baseline import save
from flashcore.gate.wording import summary
from flashcore.model.record import Facts, Record, Value
from flashcore.model.suite import GateRule
from tests import factory
from tests.gate.test_baseline import BEFORE, fact, failed, held, of


def test_the_same_facts_pass_in_silence() -> None:
    judgement = held(of())
    assert judgement.exit_code is Exit.OK
    assert not judgement.notes
    assert sum(v.budget.startswith("baseline_") for v in judgement.verdicts) >= len(BEFORE.values)


@pytest.mark.parametrize(
    ("name", "value", "fails"),
    [
        ("registers", 96, False),
        ("registers", 97, True),  # the next step of eight
        ("registers", 80, False),
        ("spill_store_bytes", 4, True),
        ("sass_bar", 7, True),
        ("sass_hmma", 48, False),  # three quarters are left: unrolled differently
        ("sass_hmma", 47, True),
        ("sass_hmma", 0, True),
        ("sass_hmma", 128, False),
        ("compiler_warnings", 1, True),
        ("sass_instructions", 9000, False),  # only shown
        ("static_smem", 9000, False),  # not held by itself: smem is
    ],
)
def test_a_regression_beyond_its_allowance_fails(name: str, value: int, fails: bool) -> None:
    judgement = held(of(fact(name, value)))
    assert failed(judgement) == ([(f"baseline_{name}", "fast/fast_kernel (sm_90a)")] if fails else [])
    if fails:
        (verdict,) = [v for v in judgement.verdicts if v.status == "fail"]
        assert verdict.source.startswith("baseline, saved")


def test_registers_within_a_step_cost_the_same() -> None:
    old = save(of(fact("registers", 90)), None).baseline
    assert held(of(fact("registers", 96)), old).exit_code is Exit.OK
    assert held(of(fact("registers", 97)), old).exit_code is Exit.FAILED


def test_the_line_of_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "baseline.txt"
    file.write_text(BEFORE.text())
    old = baseline.read(file)
    assert old is not None
    (verdict,) = [v for v in held(of(fact("registers", 128)), old).verdicts if v.status == "fail"]
    line = next(
        i for i, x in enumerate(file.read_text().splitlines(), 1) if x.startswith("fast sm_90a fast_kernel * reg")
    )
    assert verdict.source == f"baseline, baseline.txt:{line}: 96"


@pytest.mark.parametrize("value", [None, float("nan"), "many"])
def test_a_fact_that_is_none_any_more_is_unmeasured(value: Value | None) -> None:
    judgement = held(of(fact("registers", value)))
    assert judgement.exit_code is Exit.UNMEASURED


def test_a_fact_that_vanished_is_unmeasured() -> None:
    judgement = held(factory.without(of(), "sass_bar", variant="fast"))
    assert judgement.exit_code is Exit.UNMEASURED
    assert {v.budget for v in judgement.verdicts if v.status == "unmeasured" and v.required} == {"baseline_sass_bar"}


def renamed(record: Record, old: str, new: str, **changed: Value) -> Record:
    facts = []
    for f in record.facts:
        if f.subject.kernel == old:
            f = replace(f, subject=replace(f.subject, kernel=new), value=changed.get(f.name, f.value))
        facts.append(f)
    plans = tuple(
        replace(p, launches=tuple(replace(x, kernel=new if x.kernel == old else x.kernel) for x in p.launches))
        for p in record.plans
    )
    return replace(record, facts=Facts(facts), plans=plans)


def test_a_renamed_kernel_is_recognised_and_still_held() -> None:
    judgement = held(renamed(of(), "fast_kernel", "quick_kernel"))
    assert judgement.exit_code is Exit.OK
    assert "kernel renamed: fast_kernel is now quick_kernel (fast, sm_90a)" in judgement.notes
    worse = held(renamed(of(), "fast_kernel", "quick_kernel", spill_store_bytes=8))
    assert ("baseline_spill_store_bytes", "fast/quick_kernel (sm_90a)") in failed(worse)


def test_of_two_renamed_kernels_each_keeps_its_own() -> None:
    before = of(factory.fact("registers", 40, "split", arch="sm_90a", kernel="split_combine"))
    old = save(before, None).baseline
    after = renamed(renamed(before, "split_combine", "a_merge"), "split_kernel", "b_main")
    judgement = held(after, old)
    assert judgement.exit_code is Exit.OK
    assert "kernel renamed: split_combine is now a_merge (split, sm_90a)" in judgement.notes


def test_a_kernel_without_successor_leaves_a_gap() -> None:
    record = of()
    gone = replace(record, facts=Facts(f for f in record.facts if f.subject.kernel != "split_combine"))
    judgement = held(gone)
    assert judgement.exit_code is Exit.FAILED  # the plan still launches it
    assert any("no such kernel" in v.reason for v in judgement.gaps)


def test_what_the_suite_dropped_is_a_note_and_what_is_new_too() -> None:
    fewer = factory.suite([factory.variant("slow"), factory.variant("newcomer")])
    judgement = held(factory.record(fewer))
    assert judgement.exit_code is Exit.OK
    assert any("fast for sm_90a: gone from the suite" in n for n in judgement.notes)
    assert any("newcomer/newcomer_kernel" in n and "baseline save" in n for n in judgement.notes)


def test_only_the_variants_that_were_chosen_are_held() -> None:
    judgement = held(of(fact("registers", 255)), variants=("slow",))
    assert judgement.exit_code is Exit.OK


@pytest.mark.parametrize("nvcc", ["12.8.93", "13.1.12", "13.0.99"])
def test_another_nvcc_is_no_regression(nvcc: str) -> None:
    worse = of(fact("registers", 255), environment=factory.environment(nvcc=nvcc))
    judgement = held(worse)
    assert judgement.exit_code is Exit.INCAPABLE
    assert not failed(judgement)
    assert "COULD NOT JUDGE" in summary(judgement)
    assert nvcc in judgement.trouble[0]


def test_a_compile_failure_of_another_nvcc_is_no_regression_either() -> None:
    broken = (*factory.artifacts(factory.suite())[:-1], factory.artifact("split", "sm_90a", "failed", "error"))
    judgement = held(of(artifacts=broken, environment=factory.environment(nvcc="12.8.93")))
    assert judgement.exit_code is Exit.INCAPABLE


def test_what_a_gpu_measured_fails_whatever_the_compiler() -> None:
    suite = factory.suite(budgets=[factory.budget("bank_conflicts", maximum=1)])
    record = factory.record(suite, environment=factory.environment(nvcc="12.8.93"))
    assert judge.judge(record).exit_code is Exit.FAILED


def test_a_waiver_with_its_reason_loosens_and_is_listed() -> None:
    waiver = factory.waiver("baseline_registers", 128, variants=("fast",), reason="two tiles in flight")
    judgement = held(of(fact("registers", 120), waivers=(waiver,)))
    assert judgement.exit_code is Exit.OK
    text = text_tables.judgement(judgement)
    assert "loosened in the manifest (1)" in text and "two tiles in flight" in text
    assert held(of(fact("registers", 129), waivers=(waiver,))).exit_code is Exit.FAILED


def test_a_waiver_past_its_date_loosens_no_more() -> None:
    waiver = factory.waiver("baseline_registers", 128, variants=("fast",), expires="2026-05-31")
    assert held(of(fact("registers", 120), waivers=(waiver,))).exit_code is Exit.FAILED


def rule(**changes: Any) -> GateRule:
    return GateRule(**{"facts": ("registers",), "severity": "fail", "reason": "why not", **changes})


@pytest.mark.parametrize(
    ("rules", "value", "code"),
    [
        ([rule(tolerance=0.5)], 144, Exit.OK),
        ([rule(tolerance=0.5)], 145, Exit.FAILED),
        ([rule(severity="show")], 255, Exit.OK),
        ([rule(severity="ignore")], 255, Exit.OK),
        ([rule(severity="show", expires="2026-05-31")], 255, Exit.FAILED),
        ([rule(severity="show", expires="2026-06-01")], 255, Exit.OK),
        ([rule(severity="show", archs=("sm_80",))], 255, Exit.FAILED),
        ([rule(severity="show", kernels=("fast*",))], 255, Exit.OK),
        ([rule(severity="ignore"), rule()], 255, Exit.FAILED),  # the last one counts
    ],
)
def test_rules_are_data(rules: list[GateRule], value: int, code: Exit) -> None:
    judgement = held(of(fact("registers", value), rules=tuple(rules)))
    assert judgement.exit_code is code
    assert "why not" in text_tables.judgement(judgement)
