"""Facts held to a baseline: what got worse, how much of it is allowed, and what rules and waivers change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import verdict_table
from flashcore.errors import Exit
from flashcore.explain.comparison import Comparison
from flashcore.gate import baseline, judge, regressions
from flashcore.gate.baseline import save
from flashcore.gate.wording import summary
from flashcore.model.causes import DidNotCompile, PlanRefused
from flashcore.model.record import Facts, Record, Value
from flashcore.model.suite import GateRule
from tests import factory
from tests.support.baselines import BEFORE, fact, failed, judged_by, of


def test_the_same_facts_pass_without_a_note() -> None:
    judgement = judged_by(of())
    assert judgement.exit_code is Exit.OK
    assert judgement.changed and not judgement.changed.rows
    assert not judgement.notes and "note: " not in verdict_table.render(judgement)
    assert sum(v.budget.startswith("baseline_") for v in judgement.verdicts) >= len(BEFORE.values)


def test_a_line_that_was_taken_out_is_said() -> None:
    fewer = {k: v for k, v in BEFORE.values.items() if k.fact != "registers"}
    assert len(fewer) < len(BEFORE.values)
    changed = judged_by(of(), replace(BEFORE, values=fewer)).changed
    assert changed and "facts not in the baseline: flashcore baseline save" in "".join(changed.notes)
    assert "changed   registers unmeasured → 96  fast/fast_kernel (sm_90a)" in lines(changed)


def test_a_new_variant_has_the_kernels_that_it_launches() -> None:
    record = of(factory.fact("workspace_bytes", 4, "fast", arch="sm_90a"))
    changed = judged_by(record, replace(BEFORE, values={}, noted={})).changed
    assert changed and "new       3 kernels  fast" in lines(changed)


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
        ("static_smem", 9000, False),  # not in the baseline: smem is
    ],
)
def test_a_regression_beyond_its_allowance_fails(name: str, value: int, fails: bool) -> None:
    judgement = judged_by(of(fact(name, value)))
    assert failed(judgement) == ([(f"baseline_{name}", "fast/fast_kernel (sm_90a)")] if fails else [])
    if fails:
        (verdict,) = [v for v in judgement.verdicts if v.status == "fail"]
        assert verdict.source.startswith("baseline, saved")


def test_registers_within_a_step_cost_the_same() -> None:
    old = save(of(fact("registers", 90)), None).baseline
    assert judged_by(of(fact("registers", 96)), old).exit_code is Exit.OK
    assert judged_by(of(fact("registers", 97)), old).exit_code is Exit.FAILED


def test_the_line_of_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "baseline.txt"
    file.write_text(BEFORE.text())
    old = baseline.read(file)
    assert old is not None
    (verdict,) = [v for v in judged_by(of(fact("registers", 128)), old).verdicts if v.status == "fail"]
    line = next(
        i
        for i, x in enumerate(file.read_text().splitlines(), 1)
        if x.startswith("fast ") and "sm_90a fast_kernel * reg" in x
    )
    assert verdict.source == f"baseline, baseline.txt:{line}: 96"


@pytest.mark.parametrize("value", [None, float("nan"), "many"])
def test_a_fact_that_is_none_any_more_is_unmeasured(value: Value | None) -> None:
    judgement = judged_by(of(fact("registers", value)))
    assert judgement.exit_code is Exit.UNMEASURED


def test_a_fact_that_vanished_is_unmeasured() -> None:
    judgement = judged_by(factory.without(of(), "sass_bar", variant="fast"))
    assert judgement.exit_code is Exit.UNMEASURED
    assert {v.budget for v in judgement.verdicts if v.status == "unmeasured" and v.required} == {"baseline_sass_bar"}


def lines(changed: Comparison | None) -> list[str]:
    return [row.line for row in changed.rows] if changed else []


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
    judgement = judged_by(renamed(of(), "fast_kernel", "quick_kernel"))
    assert judgement.exit_code is Exit.OK
    (note,) = judgement.changed.notes if judgement.changed else ()
    assert note == "kernel renamed: fast_kernel is now quick_kernel (fast, sm_80, sm_89, sm_90a)"
    worse = judged_by(renamed(of(), "fast_kernel", "quick_kernel", spill_store_bytes=8))
    assert ("baseline_spill_store_bytes", "fast/quick_kernel (sm_90a)") in failed(worse)


def test_of_two_renamed_kernels_each_keeps_its_own() -> None:
    before = of(factory.fact("registers", 40, "split", arch="sm_90a", kernel="split_combine"))
    old = save(before, None).baseline
    after = renamed(renamed(before, "split_combine", "a_merge"), "split_kernel", "b_main")
    judgement = judged_by(after, old)
    assert judgement.exit_code is Exit.OK
    assert judgement.changed
    assert "kernel renamed: split_combine is now a_merge (split, sm_90a)" in judgement.changed.notes


def test_a_kernel_without_successor_leaves_a_gap() -> None:
    record = of()
    gone = replace(record, facts=Facts(f for f in record.facts if f.subject.kernel != "split_combine"))
    judgement = judged_by(gone)
    assert judgement.exit_code is Exit.FAILED  # the plan still launches it
    assert any("no longer exists" in v.reason for v in judgement.gaps)


def test_a_failed_build_is_told_once_and_nobody_is_told_to_save_over_it() -> None:
    record = of()
    artifacts = tuple(factory.artifact("fast", a.arch, "failed", "error: no such thing") if a.variant == "fast" else a
                      for a in record.artifacts)  # fmt: skip
    facts = Facts(f for f in record.facts if f.subject.variant != "fast" or not f.subject.arch)
    judgement = judged_by(replace(record, artifacts=artifacts, facts=facts))
    assert judgement.exit_code is Exit.FAILED
    assert len(judgement.gaps) > 10 and not judgement.unexplained_gaps
    text = verdict_table.render(judgement)
    assert "baseline save" not in text and "UNMEASURED" not in text
    assert text.count("error: no such thing") == 1 and "fast (sm_80, sm_89, sm_90a)" in text
    assert (
        f"fast: {len([v for v in judgement.verdicts if isinstance(v.cause, DidNotCompile)])} facts not measured" in text
    )


def test_facts_that_no_plan_gives_are_not_called_gone() -> None:
    record = of()
    plans = tuple(
        replace(p, launches=(), cause=PlanRefused("no such shape")) if p.variant == "fast" else p for p in record.plans
    )
    planned = ("smem", "theoretical_occupancy", "workspace_bytes")
    facts = Facts(f for f in record.facts if f.subject.variant != "fast" or f.name not in planned)
    judgement = judged_by(replace(record, plans=plans, facts=facts))
    assert {v.reason for v in judgement.gaps} == {"no launch plan on long: no such shape"}


def test_what_the_suite_dropped_is_a_note_and_what_is_new_too() -> None:
    fewer = factory.suite([factory.variant("slow"), factory.variant("newcomer")])
    judgement = judged_by(factory.record(fewer))
    assert judgement.exit_code is Exit.OK
    assert any("fast for sm_90a: no longer in the suite" in n for n in judgement.notes)
    assert judgement.changed and any("baseline save" in n for n in judgement.changed.notes)
    shown = {(row.outcome, row.subject.variant) for row in judgement.changed.rows}
    assert {("gone", "fast"), ("new", "newcomer")} <= shown


def test_only_the_variants_that_were_chosen_are_held() -> None:
    judgement = judged_by(of(fact("registers", 255)), variants=("slow",))
    assert judgement.exit_code is Exit.OK


@pytest.mark.parametrize("nvcc", ["12.8.93", "13.1.12", "13.0.99"])
def test_another_nvcc_is_no_regression(nvcc: str) -> None:
    worse = of(fact("registers", 255), environment=factory.environment(nvcc=nvcc))
    judgement = judged_by(worse)
    assert judgement.exit_code is Exit.INCAPABLE
    assert not failed(judgement)
    assert "COULD NOT CHECK" in summary(judgement)
    assert nvcc in judgement.trouble[0]


def test_a_compile_failure_of_another_nvcc_is_no_regression_either() -> None:
    broken = (*factory.artifacts(factory.suite())[:-1], factory.artifact("split", "sm_90a", "failed", "error"))
    judgement = judged_by(of(artifacts=broken, environment=factory.environment(nvcc="12.8.93")))
    assert judgement.exit_code is Exit.INCAPABLE


def test_what_a_gpu_measured_fails_whatever_the_compiler() -> None:
    suite = factory.suite(budgets=[factory.budget("bank_conflicts", maximum=1)])
    record = factory.record(suite, environment=factory.environment(nvcc="12.8.93"))
    assert judge.judge(record).exit_code is Exit.FAILED


def test_a_waiver_with_its_reason_loosens_and_is_listed() -> None:
    waiver = factory.waiver("baseline_registers", 128, variants=("fast",), reason="two tiles in flight")
    judgement = judged_by(of(fact("registers", 120), waivers=(waiver,)))
    assert judgement.exit_code is Exit.OK
    text = verdict_table.render(judgement)
    assert "waived (1)" in text and "two tiles in flight" in text
    assert judged_by(of(fact("registers", 129), waivers=(waiver,))).exit_code is Exit.FAILED


def test_a_waiver_past_its_date_loosens_no_more() -> None:
    waiver = factory.waiver("baseline_registers", 128, variants=("fast",), expires="2026-05-31")
    assert judged_by(of(fact("registers", 120), waivers=(waiver,))).exit_code is Exit.FAILED


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
    judgement = judged_by(of(fact("registers", value), rules=tuple(rules)))
    assert judgement.exit_code is code
    assert "why not" in verdict_table.render(judgement)


# --- what cannot be held any more -----------------------------------------------------------------


def without_shapes(record: Record, *shapes: str) -> Record:
    kept = {n: s for n, s in record.suite.shapes.items() if n not in shapes}
    facts = Facts(f for f in record.facts if f.subject.shape not in shapes)
    return replace(record, suite=replace(record.suite, shapes=kept), facts=facts)


def uneven() -> Record:
    """The occupancy at two shapes that differ, so that each has a line of its own."""
    at: dict[str, Any] = {"arch": "sm_90a", "kernel": "fast_kernel"}
    return of(
        *(factory.fact("theoretical_occupancy", n, "fast", shape=s, **at) for s, n in (("mission", 20), ("long", 30)))
    )


def test_a_shape_of_the_baseline_is_held_to_its_own_line() -> None:
    record = uneven()
    old = save(record, None).baseline
    limited = {
        k.shape for k in old.values if (k.variant, k.arch, k.fact) == ("fast", "sm_90a", "theoretical_occupancy")
    }
    assert limited == {"long", "mission"}
    assert judged_by(record, old).exit_code is Exit.OK
    swapped = of(
        *(
            replace(f, value=50 - int(f.number or 0))
            for f in record.facts.named("theoretical_occupancy")
            if f.subject.variant == "fast" and f.subject.arch == "sm_90a"
        )
    )
    assert failed(judged_by(swapped, old)) == [("baseline_theoretical_occupancy", "fast/long/fast_kernel (sm_90a)")]


def test_a_fact_of_one_shape_that_vanished_names_the_shape() -> None:
    record = uneven()
    old = save(record, None).baseline
    gone = replace(
        record,
        facts=Facts(f for f in record.facts if not (f.name == "theoretical_occupancy" and f.subject.shape == "long")),
    )
    gaps = [
        v
        for v in judged_by(gone, old).verdicts
        if v.budget == "baseline_theoretical_occupancy"
        and v.status == "unmeasured"
        and v.subject.variant == "fast"
        and v.subject.arch == "sm_90a"
    ]
    assert [(v.subject.shape, v.subject.kernel) for v in gaps] == [("long", "fast_kernel")]
    assert gaps[0].reason.startswith("this kernel or fact no longer exists")


def test_what_the_suite_lost_is_counted() -> None:
    record = uneven()
    old = save(record, None).baseline
    notes = judged_by(without_shapes(record, "long"), old).notes
    assert "shape long: no longer in the suite, 1 fact of the baseline skipped" in notes
    suite = factory.suite([v for v in factory.suite().variants.values() if v.name != "split"])
    lines = sum(k.variant == "split" for k in BEFORE.values)
    assert lines > 1
    assert (
        f"split for sm_90a: no longer in the suite, {lines} facts of the baseline skipped"
        in judged_by(factory.record(suite)).notes
    )


def test_a_rule_is_listed_with_how_far_it_goes() -> None:
    rules = (
        rule(tolerance=0.25), rule(severity="show", tolerance=0.5, variants=("fast",), expires="2026-07-01"),
        rule(severity="ignore", facts=("sass_bar", "barriers")), rule(expires="2026-01-01"),
    )  # fmt: skip
    assert judged_by(of(rules=rules)).relaxed == (
        "registers on all variants: may get worse by 25 %: why not",
        "registers on fast: shown beyond 50 %, until 2026-07-01: why not",
        "sass_bar, barriers on all variants: not compared: why not",
        "registers on all variants: , expired on 2026-01-01: why not",
    )


def test_slack_is_of_limits_that_all_keep_and_static_ones_alone() -> None:
    budgets = [
        factory.goal("registers", "wish", maximum=128),
        factory.budget("ncu_duration", "counter", maximum=1e9),
        factory.budget("registers", "missed", maximum=8),
        factory.budget("registers", "loose", maximum=128),
        factory.budget("stack_bytes", "exact", maximum=0),
        factory.budget("sass_hmma", "from_none", minimum=0),
    ]
    record = factory.record(factory.suite(budgets=budgets))
    assert regressions.slack(record) == ["loose: max = 128 could be 96", "from_none: min = 0 could be 64"]
    gap = factory.record(factory.suite(budgets=budgets), [fact("registers", None)])
    assert regressions.slack(gap) == ["from_none: min = 0 could be 64"]


def test_what_a_rule_ignores_hides_none_behind_it() -> None:
    first, *_, last = dict.fromkeys(k.variant for k in BEFORE.values)
    kernel = next(k.kernel for k in BEFORE.values if (k.variant, k.fact) == (last, "registers"))
    worse = factory.fact("registers", 255, last, arch="sm_90a", kernel=kernel)
    ignored = rule(severity="ignore", facts=("*",), variants=(first,))
    assert failed(judged_by(of(worse, rules=(ignored,)))) == [("baseline_registers", f"{last}/{kernel} (sm_90a)")]


# --- kernels by what they are, and what is only noted -----------------------------------------------


def instantiations(**registers: int) -> Record:
    """A variant with an instantiation for each number of registers; ``_`` in names stands for ``,``."""
    facts = [
        factory.fact(name, value, "split", arch="sm_90a", kernel=f"rows<{kernel.replace('__', ',').replace('_', '=')}>")
        for kernel, count in registers.items()
        for name, value in (("registers", count), ("sass_instructions", 10 * count), ("spill_store_bytes", 0))
    ]
    return replace(factory.bare_record(), facts=Facts(facts), plans=())


def test_a_slower_instantiation_is_compared_with_its_own_past() -> None:
    old = save(instantiations(BLOCK_256=40, BLOCK_1024=96), None).baseline
    now = instantiations(BLOCK_1024__warps_8=40, BLOCK_256__warps_4=96)  # as if each had become the other
    judgement = judged_by(now, old)
    assert failed(judgement) == [("baseline_registers", "split/rows<BLOCK=256,warps=4> (sm_90a)")]
    assert any("rows<BLOCK=256,warps=4> (sm_90a) (was rows<BLOCK=256>)" in line for line in lines(judgement.changed))


def test_what_cannot_be_paired_is_new_or_gone_by_name() -> None:
    old = save(instantiations(T_float=40, T_double=96), None).baseline
    judgement = judged_by(instantiations(T_half=200), old)
    assert judgement.exit_code is Exit.UNMEASURED
    assert {v.subject.kernel for v in judgement.gaps} == {"rows<T=float>", "rows<T=double>"}
    assert judgement.changed
    assert {(row.outcome, row.subject.kernel) for row in judgement.changed.rows} == {
        ("gone", "rows<T=float>"),
        ("gone", "rows<T=double>"),
        ("new", "rows<T=half>"),
    }
    saved = save(instantiations(T_half=200), old)
    assert saved.gone == ("split/rows<T=float> (sm_90a)", "split/rows<T=double> (sm_90a)")
    kept = save(instantiations(T_half=200), old, ratchet=True).baseline
    assert {key.kernel for key in kept.values} >= {"rows<T=float>", "rows<T=double>"}


def test_another_launch_is_shown_with_both() -> None:
    record = of()
    before = save(record, None).baseline
    halved = tuple(
        replace(p, launches=tuple(replace(x, grid=(8, 8, 1)) for x in p.launches))
        if (p.variant, p.shape) == ("fast", "long")
        else p
        for p in record.plans
    )
    judgement = judged_by(replace(record, plans=halved), before)
    assert judgement.exit_code is Exit.OK
    launches = "launch grid=16x8 block=256 smem=32768 → grid=8x8 block=256 smem=32768"
    assert f"changed   {launches} (long)  fast/fast_kernel (sm_90a)" in lines(judgement.changed)
    again = save(replace(record, plans=halved), before).baseline
    assert "fast sm_80,sm_89,sm_90a fast_kernel long launch grid=8x8 block=256 smem=32768\n" in again.text()
    assert not lines(judged_by(replace(record, plans=halved), again).changed)


def test_other_machine_code_and_fp64_instructions_are_shown() -> None:
    def built(code: str, fp64: int) -> Record:
        return of(fact("code", code), fact("sass_fp64", fp64))

    before = save(built("f00d", 0), None).baseline
    assert not lines(judged_by(built("f00d", 0), before).changed)
    assert lines(judged_by(built("cafe", 0), before).changed) == [
        "changed   other machine code  fast/fast_kernel (sm_90a)"
    ]
    first = judged_by(built("cafe", 6), before)
    assert first.exit_code is Exit.OK
    assert lines(first.changed) == ["worse     sass_fp64 0 → 6  fast/fast_kernel (sm_90a)"]
    assert first.changed and first.changed.alike == (0, 1)
    had = save(built("f00d", 6), None).baseline
    assert lines(judged_by(built("cafe", 0), had).changed) == ["better    sass_fp64 6 → 0  fast/fast_kernel (sm_90a)"]
    assert not lines(judged_by(built("cafe", 6)).changed)  # an older file
