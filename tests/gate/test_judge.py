"""The judge: every way a promise can be kept, broken, waived or left unmeasured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import date
from typing import Any

import pytest

from flashcore.cli import verdict_table
from flashcore.errors import Exit
from flashcore.gate.judge import Judgement, Verdict, judge
from flashcore.model.causes import (
    CodeChanged,
    LaunchRefused,
    NotOptedIn,
    OtherGpu,
    PlanCrashed,
    PlanRefused,
    PlanStopped,
    PlanUnknown,
)
from flashcore.model.record import Facts, Origin, Record, Subject, Value
from flashcore.model.suite import Budget, ImportedKernel, Tier, Waiver
from tests import factory

TODAY = date(2026, 6, 1)
REGISTERS = factory.budget("registers", maximum=128)


def of(budgets: Iterable[Budget], waivers: Iterable[Waiver] = (), facts: Iterable[Any] = (), **changes: Any) -> Record:
    return factory.record(factory.suite(budgets=budgets, waivers=waivers), facts, **changes)


def of_budget(judgement: Judgement, budget: str, status: str | None = None) -> list[Verdict]:
    return [v for v in judgement.verdicts if v.budget == budget and status in (None, v.status)]


def registers(value: Value | None, variant: str = "fast", arch: str = "sm_89", detail: str = "") -> Any:
    return factory.fact("registers", value, variant, arch=arch, kernel=f"{variant}_kernel", detail=detail)


# --- pass and fail ------------------------------------------------------------------------------


def test_a_complete_record_passes_and_every_subject_is_judged() -> None:
    result = judge(of([REGISTERS]), require="timing", today=TODAY)
    assert result.exit_code is Exit.OK
    subjects = {str(v.subject) for v in of_budget(result, "registers_limit")}
    expected = {f"{v}/{v}_kernel ({a})" for v in ("slow", "fast") for a in factory.ARCHS}
    assert subjects == expected | {"split/split_kernel (sm_90a)", "split/split_combine (sm_90a)"}
    assert result.left_out == 2  # split on sm_80 and sm_89


def test_one_value_beyond_its_limit_fails_and_is_named() -> None:
    result = judge(of([REGISTERS], facts=[registers(129)]))
    assert result.exit_code is Exit.FAILED
    (verdict,) = of_budget(result, "registers_limit", "fail")
    assert str(verdict.subject) == "fast/fast_kernel (sm_89)"
    assert (verdict.value, verdict.limit, verdict.source) == (129, "≤ 128", "FlashCore design 000")


@pytest.mark.parametrize(
    ("limits", "value", "status"),
    [
        ({"maximum": 96}, 96, "pass"),
        ({"maximum": 96}, 97, "fail"),
        ({"minimum": 96}, 96, "pass"),
        ({"minimum": 96}, 95, "fail"),
        ({"minimum": 64, "maximum": 96}, 80, "pass"),
        ({"minimum": 64, "maximum": 96}, 63, "fail"),
        ({"minimum": 64, "maximum": 96}, 97, "fail"),
    ],
)
def test_limits_are_inclusive(limits: dict[str, Any], value: int, status: str) -> None:
    budget = factory.budget("registers", variants=("fast",), archs=("sm_89",), **limits)
    result = judge(of([budget], facts=[registers(value)]))
    assert [v.status for v in of_budget(result, "registers_limit")] == [status]


@pytest.mark.parametrize(
    ("fact", "subject"),
    [
        ("theoretical_occupancy", {"arch": "sm_89", "shape": "long", "kernel": "fast_kernel"}),
        ("isolated_p50", {"shape": "long"}),
        ("bank_conflicts", {"shape": "mission"}),
        ("max_error", {"shape": "mission"}),
        ("formula_flop", {"shape": "mission"}),
    ],
)
def test_each_kind_of_fact_is_judged_where_it_lives(fact: str, subject: dict[str, str]) -> None:
    budget = factory.budget(fact, variants=("fast",), maximum=1e15)
    bad = factory.fact(fact, 2e15, "fast", **subject)  # type: ignore[arg-type]
    result = judge(of([budget], facts=[bad]), require="timing")
    (verdict,) = of_budget(result, f"{fact}_limit", "fail")
    assert verdict.subject == bad.subject
    assert judge(of([budget]), require="timing").exit_code is Exit.OK


def test_kernels_of_a_case_have_limits_of_their_own() -> None:
    budget = factory.budget("bank_conflicts", kernels=("*_combine",), maximum=1000)
    facts = [factory.fact("bank_conflicts", 5000, "split", shape="mission", kernel="split_combine")]
    result = judge(of([budget], facts=facts), require="timing")
    assert [str(v.subject) for v in of_budget(result, "bank_conflicts_limit", "fail")] == [
        "split/mission/split_combine"
    ]
    assert len(of_budget(result, "bank_conflicts_limit", "pass")) == 1


def test_peers_have_no_budgets() -> None:
    budget = factory.budget("isolated_p50", maximum=1)
    assert not any(v.subject.variant == "cudnn" for v in judge(of([budget])).verdicts)


# --- unmeasured: fail closed --------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None, "low", True])
def test_what_is_no_number_is_unmeasured_and_never_a_pass(value: Value | None) -> None:
    result = judge(of([REGISTERS], facts=[registers(value, detail="the tool was silent")]))
    assert result.exit_code is Exit.UNMEASURED
    (verdict,) = of_budget(result, "registers_limit", "unmeasured")
    assert verdict.required
    assert verdict.value is None
    assert (
        verdict.reason == "the tool was silent"
        if value is None
        else "expected a finite number, found" in verdict.reason
    )


@pytest.mark.parametrize(
    ("fact", "removed"),
    [
        ("registers", {"variant": "fast", "arch": "sm_89"}),
        ("registers", {"kernel": "split_combine"}),  # one kernel of two
        ("theoretical_occupancy", {"kernel": "split_combine", "shape": "long"}),  # of the plan
    ],
)
def test_a_fact_that_vanished_leaves_a_gap(fact: str, removed: dict[str, str]) -> None:
    result = judge(factory.without(of([factory.budget(fact, minimum=10)]), fact, **removed))
    assert result.exit_code is Exit.UNMEASURED
    (gap,) = of_budget(result, f"{fact}_limit", "unmeasured")
    assert removed.items() <= asdict(gap.subject).items()


def test_an_empty_record_is_no_pass() -> None:
    suite = factory.suite(budgets=[REGISTERS])
    record = factory.bare_record(suite, artifacts=(), plans=())
    result = judge(record)
    assert result.exit_code is Exit.UNMEASURED
    assert not result.counts()["pass"]


@pytest.mark.parametrize("kernels", [("old_name",), ("!*",), ("*", "!*_kernel", "!split_*")])
def test_a_renamed_kernel_does_not_lose_its_promise(kernels: tuple[str, ...]) -> None:
    budget = factory.budget("registers", kernels=kernels, maximum=128)
    others = factory.budget("registers", "others", maximum=255)
    for budgets in ([budget], [budget, others]):
        result = judge(of(budgets))
        assert result.exit_code is Exit.UNMEASURED
        assert all("renamed" in v.reason for v in of_budget(result, "registers_limit"))


def test_no_kernel_escapes_the_globs_by_a_new_name() -> None:  # item 5
    main = factory.budget("registers", "main", kernels=("*_kernel",), maximum=128)
    combine = factory.budget("registers", "combine", kernels=("split_*combine",), maximum=128)
    assert judge(of([main, combine])).exit_code is Exit.OK
    renamed = [
        replace(f, subject=replace(f.subject, kernel="split_merge")) if f.subject.kernel == "split_combine" else f
        for f in of([main, combine]).facts
    ]
    result = judge(replace(of([main, combine]), facts=Facts(renamed)))
    assert result.exit_code is not Exit.OK
    reasons = {str(v.subject): v.reason for v in result.gaps}
    assert "names this kernel" in reasons["split/split_merge (sm_90a)"]
    assert any("no kernel matches split_*combine" in r for r in reasons.values())
    alone = judge(of([combine]))  # who limits some kernels of his variants limits them all
    assert "names this kernel" in {str(v.subject): v.reason for v in alone.gaps}["fast/fast_kernel (sm_89)"]
    whole = factory.budget("registers", "others", maximum=255)
    assert judge(of([combine, whole])).exit_code is Exit.OK


@pytest.mark.parametrize(
    ("fact", "tier"), [("registers", "static"), ("bank_conflicts", "counters"), ("isolated_p50", "timing")]
)
@pytest.mark.parametrize("require", ["static", "counters", "timing"])
def test_require_says_up_to_which_tier_a_gap_exits_3(fact: str, tier: Tier, require: Tier) -> None:
    order = ("static", "counters", "timing")
    record = factory.without(of([factory.budget(fact, maximum=1e9)]), fact, variant="fast")
    result = judge(record, require=require)
    needed = order.index(tier) <= order.index(require)
    assert result.exit_code is (Exit.UNMEASURED if needed else Exit.OK)
    assert of_budget(result, f"{fact}_limit", "unmeasured")


def test_a_failed_limit_outweighs_a_gap_and_both_are_listed() -> None:
    record = factory.without(of([REGISTERS], facts=[registers(200)]), "registers", variant="slow", arch="sm_80")
    result = judge(record)
    assert result.exit_code is Exit.FAILED
    assert [v.subject.shape for v in result.gaps if v.budget == "registers_limit"] == [None]
    text = verdict_table.render(result)
    assert text.index("FAILED (1)") < text.index("UNMEASURED, required")


def test_stale_cases_are_unmeasured_even_beside_facts() -> None:
    budget = factory.budget("bank_conflicts", maximum=1e9)
    record = replace(of([budget]), stale={"fast/long": CodeChanged("device")})
    result = judge(record, require="counters")
    assert result.exit_code is Exit.UNMEASURED
    (gap,) = of_budget(result, "bank_conflicts_limit", "unmeasured")
    assert (gap.subject.case, gap.reason) == ("fast/long", "stale: the device code, the plan or the problem changed")
    assert [v.subject.case for v in of_budget(result, "correct", "unmeasured")] == ["fast/long"]
    assert judge(record).exit_code is Exit.OK
    first = judge(replace(of([budget]), stale={"fast/mission": CodeChanged("device")}), require="counters")
    of_fast = [v for v in of_budget(first, "bank_conflicts_limit") if v.subject.variant == "fast"]
    assert {v.subject.case: v.status for v in of_fast} == {"fast/mission": "unmeasured", "fast/long": "pass"}


def test_a_gap_says_what_the_stage_said() -> None:
    budget = factory.budget("bank_conflicts", maximum=1e9, variants=("fast",))
    record = factory.without(of([budget]), "bank_conflicts")
    outcomes = tuple(
        factory.outcome(o.variant, o.shape, o.stage, "failed", "killed by SIGSEGV") if o.stage == "profile" else o
        for o in record.outcomes
    )
    result = judge(replace(record, outcomes=outcomes))
    assert {v.reason for v in of_budget(result, "bank_conflicts_limit")} == {"killed by SIGSEGV"}


# --- builds and correct, the two that need no budget --------------------------------------------


def test_a_failed_build_is_a_failure_with_the_compilers_words() -> None:
    record = of([REGISTERS])
    broken = factory.artifact("fast", "sm_89", "failed", "fast.cu(7): error: expected a ;")
    artifacts = tuple(broken if (a.variant, a.arch) == ("fast", "sm_89") else a for a in record.artifacts)
    result = judge(replace(record, artifacts=artifacts))
    assert result.exit_code is Exit.FAILED
    (verdict,) = of_budget(result, "builds", "fail")
    assert "fast.cu(7)" in verdict.reason


def test_an_arch_that_was_not_built_is_unmeasured() -> None:
    record = of([])
    record = replace(record, artifacts=tuple(a for a in record.artifacts if a.arch != "sm_80"))
    result = judge(record)
    assert result.exit_code is Exit.UNMEASURED
    assert {v.subject.arch for v in of_budget(result, "builds", "unmeasured")} == {"sm_80"}


def test_a_wrong_answer_fails_whatever_is_required() -> None:
    record = of([])
    bad = factory.outcome("fast", "mission", "check", "failed", "NaN in out")
    result = judge(replace(record, outcomes=(*record.outcomes, bad)))
    assert result.exit_code is Exit.FAILED
    assert of_budget(result, "correct", "fail")[0].reason == "NaN in out"


def test_no_gpu_at_all_is_no_failure_of_the_static_tier() -> None:
    suite = factory.suite(budgets=[REGISTERS, factory.budget("isolated_p50", maximum=1)])
    facts = [f for v in ("slow", "fast") for f in factory.static_facts(v, shapes=("mission", "long"))]
    facts += factory.static_facts("split", ("sm_90a",), ("mission", "long"))
    record = factory.bare_record(suite, facts, environment=factory.environment(gpu=None))
    assert judge(record).exit_code is Exit.OK
    assert judge(record, require="counters").exit_code is Exit.UNMEASURED


def test_variants_of_the_same_machine_code_are_named() -> None:
    record = factory.record()
    first, second, *_ = dict.fromkeys(a.variant for a in record.artifacts)
    codes = {first: "same", second: "same"}
    record = replace(
        record, artifacts=tuple(replace(a, code=codes.get(a.variant, a.variant)) for a in record.artifacts)
    )
    archs = ", ".join(dict.fromkeys(a.arch for a in record.artifacts))
    assert f"the machine code of {first}, {second} is identical ({archs})" in judge(record).notes


def test_a_peers_failure_is_a_note() -> None:
    record = of([])
    bad = factory.outcome("cudnn", "mission", "check", "failed", "no such backend")
    result = judge(replace(record, outcomes=(*record.outcomes, bad)))
    assert result.exit_code is Exit.OK
    assert any("cudnn/mission" in n for n in result.notes)


def test_the_inner_loop_judges_only_what_it_built() -> None:
    record = of([REGISTERS])
    record = replace(record, artifacts=tuple(a for a in record.artifacts if a.variant == "fast"))
    assert judge(record).exit_code is Exit.UNMEASURED
    result = judge(record, variants=("fast",))
    assert result.exit_code is Exit.OK
    assert {v.subject.variant for v in result.verdicts} == {"fast"}


# --- goals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "value", "status", "progress"),
    [
        ({"maximum": 10.0}, 40.0, "open", 0.25),
        ({"maximum": 10.0}, 8.0, "pass", 1.0),
        ({"maximum": 10.0}, 10.0, "pass", 1.0),
        ({"minimum": 60.0}, 15.0, "open", 0.25),
        ({"minimum": 60.0}, 61.0, "pass", 1.0),
        ({"maximum": 0.0}, 3.0, "open", 0.0),
        ({"minimum": 60.0}, -1.0, "open", 0.0),
        ({"minimum": 0.0}, -1.0, "open", 0.0),
    ],
)
def test_goals_show_progress_and_never_fail(limits: dict[str, Any], value: float, status: str, progress: float) -> None:
    budget = factory.goal("eager_p50", variants=("fast",), shapes=("mission",), stretch=5.0, **limits)
    result = judge(of([budget], facts=[factory.fact("eager_p50", value, "fast", shape="mission")]), require="timing")
    (verdict,) = of_budget(result, "eager_p50_goal")
    assert verdict.status == status
    assert verdict.progress == pytest.approx(progress)
    assert result.exit_code is Exit.OK
    assert "stretch 5 µs" in verdict.limit


def test_an_unmeasured_goal_is_not_required() -> None:
    record = factory.without(of([factory.goal("isolated_p50", maximum=10)]), "isolated_p50")
    result = judge(record, require="timing")
    assert result.exit_code is Exit.OK
    assert result.counts("goal")["unmeasured"] == 6


# --- devices and archs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "gpu", "here"),
    [
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40", False),
        ("L4", "NVIDIA H200", False),
        ("H200", "NVIDIA H200", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
    ],
)
def test_a_budget_of_a_device_holds_there_alone(device: str, gpu: str, here: bool) -> None:
    budget = factory.budget("isolated_p50", maximum=1, device=device)
    result = judge(of([budget], environment=factory.environment(gpu=gpu)), require="timing")
    assert result.exit_code is (Exit.FAILED if here else Exit.OK)
    if not here:
        assert {v.status for v in of_budget(result, "isolated_p50_limit")} == {"unmeasured"}
        assert of_budget(result, "isolated_p50_limit")[0].reason == f"only for {device}; this record is from {gpu}"


def test_joined_facts_are_of_the_gpu_they_were_measured_on() -> None:
    budget = factory.budget("isolated_p50", maximum=1, device="H200")
    origin = Origin("20260101T000000Z-0000", "NVIDIA H200", "sm_90a", "all")
    record = of([budget], environment=factory.environment(gpu=None), joined=(origin,))
    assert judge(record).exit_code is Exit.FAILED


def test_a_measured_budget_of_another_arch_is_not_judged_here() -> None:
    result = judge(of([factory.budget("isolated_p50", maximum=1, archs=("sm_89",))]), require="timing")
    assert result.exit_code is Exit.OK
    assert "only for sm_89" in of_budget(result, "isolated_p50_limit")[0].reason


def test_a_variant_that_this_gpu_does_not_support_is_left_out() -> None:
    environment = factory.environment(gpu="NVIDIA L4", gpu_arch="sm_89")
    result = judge(of([factory.budget("isolated_p50", maximum=1e9)], environment=environment), require="timing")
    assert "split" not in {v.subject.variant for v in of_budget(result, "isolated_p50_limit")}


# --- waivers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "accepted", "status", "state"),
    [
        (140, 140, "waived", "holds"),
        (139, 140, "waived", "holds"),
        (141, 140, "fail", "exceeded"),
        (128, 140, "pass", "not needed"),
    ],
)
def test_a_waiver_covers_up_to_what_it_accepts(value: int, accepted: float, status: str, state: str) -> None:
    waiver = factory.waiver("registers_limit", accepted, variants=("fast",), archs=("sm_89",))
    result = judge(of([REGISTERS], [waiver], [registers(value)]), today=TODAY)
    (verdict,) = [v for v in of_budget(result, "registers_limit") if v.subject == registers(0).subject]
    assert verdict.status == status
    (use,) = result.waivers
    assert (use.state, use.worst, use.covers) == (state, value, int(status == "waived"))
    assert result.exit_code is (Exit.FAILED if status == "fail" else Exit.OK)
    if status == "fail":
        assert "141" in verdict.reason
        assert "140" in verdict.reason
    if state == "not needed":
        assert "no longer needed" in verdict_table.render(result)


def test_a_waiver_of_a_minimum_looks_the_other_way() -> None:
    budget = factory.budget("theoretical_occupancy", minimum=30, variants=("fast",))
    good = factory.waiver("theoretical_occupancy_limit", 25)
    assert judge(of([budget], [good])).exit_code is Exit.OK
    bad = factory.waiver("theoretical_occupancy_limit", 26)
    assert judge(of([budget], [bad])).exit_code is Exit.FAILED


def test_a_waiver_below_a_range_does_not_cover_a_miss_above_it() -> None:
    budget = factory.budget("registers", minimum=64, maximum=128, archs=("sm_89",), variants=("fast",))
    waiver = factory.waiver("registers_limit", 32)
    assert judge(of([budget], [waiver], [registers(129)])).exit_code is Exit.FAILED
    assert judge(of([budget], [waiver], [registers(40)])).exit_code is Exit.OK


@pytest.mark.parametrize(
    ("expires", "today", "code"),
    [
        ("2026-06-01", date(2026, 6, 1), Exit.OK),  # the last day
        ("2026-05-31", date(2026, 6, 1), Exit.FAILED),
        ("2026-05-31", None, Exit.OK),
        (None, date(2099, 1, 1), Exit.OK),
    ],
)
def test_a_waiver_past_its_date_does_not_hold(expires: str | None, today: date | None, code: Exit) -> None:
    waiver = factory.waiver("registers_limit", 200, expires=expires)
    result = judge(of([REGISTERS], [waiver], [registers(140)]), today=today)
    assert result.exit_code is code
    if code is Exit.FAILED:
        assert result.waivers[0].state == "expired"
        assert "expired on 2026-05-31" in of_budget(result, "registers_limit", "fail")[0].reason
    assert any("without a date" in n for n in result.notes) == (today is None)


def test_a_waiver_holds_only_where_it_says() -> None:
    waiver = factory.waiver("registers_limit", 200, archs=("sm_80",))
    assert judge(of([REGISTERS], [waiver], [registers(140)])).exit_code is Exit.FAILED
    other = factory.waiver("another_limit", 200)
    result = judge(of([REGISTERS], [other], [registers(140)]))
    assert result.exit_code is Exit.FAILED
    assert result.waivers[0].state == "idle"


def test_a_waiver_never_covers_what_is_not_a_number() -> None:
    waiver = factory.waiver("registers_limit", 1e9)
    assert judge(of([REGISTERS], [waiver], [registers(float("nan"))])).exit_code is Exit.UNMEASURED


def test_loosened_limits_are_listed() -> None:
    waiver = factory.waiver("registers_limit", 200)
    assert [w.waiver for w in judge(of([REGISTERS], [waiver], [registers(140)])).loosened] == [waiver]


# --- notes and text -----------------------------------------------------------------------------


def test_another_nvcc_release_is_said_loudly() -> None:
    result = judge(of([], environment=factory.environment(nvcc="12.8.93")))
    assert any("12.8.93" in n and "13.0" in n for n in result.notes)
    limits = [factory.budget("registers", maximum=8), factory.budget("bank_conflicts", maximum=1e9)]
    result = judge(of(limits, environment=factory.environment(nvcc="12.8.93")), require="counters")
    assert result.exit_code is Exit.INCAPABLE, "what another compiler made keeps no promise and breaks none"
    static = of_budget(result, "registers_limit")
    assert {(v.status, v.value) for v in static} == {("unmeasured", None)}
    assert all("built with nvcc 12.8.93" in v.reason for v in static)
    assert {v.status for v in of_budget(result, "bank_conflicts_limit")} == {"pass"}
    assert not any("nvcc" in n for n in judge(of([], environment=factory.environment(nvcc="13.0.99"))).notes)


def test_the_order_of_facts_changes_nothing() -> None:
    clean = of([REGISTERS])
    turned = replace(clean, facts=Facts(reversed(list(clean.facts))))
    assert {(v.subject, v.status) for v in judge(clean).verdicts} == {
        (v.subject, v.status) for v in judge(turned).verdicts
    }


def test_thousands_of_cases_are_judged_and_drawn() -> None:
    budgets = [
        REGISTERS,
        factory.budget("theoretical_occupancy", minimum=20),
        factory.budget("bank_conflicts", maximum=1e6),
        factory.budget("spill_instructions", maximum=0),
        factory.goal("isolated_p50", maximum=5),
    ]
    waivers = [factory.waiver("registers_limit", 200, variants=(f"v{i}",)) for i in range(20)]
    record = factory.large_record(2_000, budgets, waivers)
    result = judge(record, require="timing", today=TODAY)
    verdict_table.render(result)
    assert result.exit_code is Exit.OK
    assert len(result.verdicts) > 8_000


# --- promises that stand without a budget -------------------------------------------------------


@pytest.mark.parametrize("stage", ["check", "bench", "profile", "sanitize"])
def test_a_stage_that_fails_on_a_case_fails_the_gate_unless_waived(
    stage: Any,
) -> None:  # a crash in bench was not judged
    name = "correct" if stage == "check" else "runs"
    record = of([])
    outcomes = (*(o for o in record.outcomes if (o.case, o.stage) != ("fast/mission", stage)),
                factory.outcome("fast", "mission", stage, "failed", "illegal memory access"))  # fmt: skip
    result = judge(replace(record, outcomes=outcomes))
    assert result.exit_code is Exit.FAILED
    (verdict,) = of_budget(result, name, "fail")
    assert str(verdict.subject) == "fast/mission" and "illegal memory access" in verdict.reason
    waiver = Waiver(name, ("fast",), ("*",), ("mission",), ("*",), 1, "known")
    waived = judge(replace(record, outcomes=outcomes, suite=replace(record.suite, waivers=(waiver,))))
    assert waived.exit_code is Exit.OK and len(of_budget(waived, name, "waived")) == 1
    assert judge(replace(record, outcomes=outcomes), variants=["slow"]).exit_code is Exit.OK


def test_a_launch_that_differs_from_its_plan_fails() -> None:
    bad = factory.fact("plan_matches", 0, "fast", shape="mission", detail="grid: 16 planned, 8 seen")
    result = judge(of([], facts=[bad]))
    assert result.exit_code is Exit.FAILED
    assert [str(v.subject) for v in of_budget(result, "as_planned", "fail")] == ["fast/mission"]


def test_a_plan_that_names_another_kernel_or_crashes_fails_without_a_gpu() -> None:  # item 5: a misspelled kernel
    record = of([])
    misspelled = factory.plan("fast", "long")
    misspelled = replace(misspelled, launches=(replace(misspelled.launches[0], kernel="fsat_kernel"),))
    result = judge(replace(record, plans=(misspelled, *(p for p in record.plans if p.variant != "fast"))))
    assert result.exit_code is Exit.FAILED
    assert "fsat_kernel; the built kernels are fast_kernel" in of_budget(result, "as_planned", "fail")[0].reason
    recorded = of([], [Waiver("as_planned", ("fast",), ("*",), ("long",), ("*",), 1, "known")], plans=(misspelled,))
    waived = judge(recorded)
    assert waived.exit_code is Exit.OK and len(of_budget(waived, "as_planned", "waived")) == len(factory.ARCHS)
    crashed = replace(factory.plan("fast", "long", error="x"), cause=PlanCrashed(-11))
    result = judge(replace(record, plans=(crashed,)))
    assert result.exit_code is Exit.FAILED and of_budget(result, "as_planned", "fail")[0].reason.startswith(
        "the launch plan was killed by signal 11: it reads a tensor, perhaps"
    )


def test_launches_that_cannot_work_fail_and_unknown_ones_are_unmeasured() -> None:
    record = of([])
    refused = LaunchRefused("fast_kernel", NotOptedIn("MaxDynamicSharedMemorySize", 65536, 49152))
    plan = replace(factory.plan("fast", "long", error="x"), archs=("sm_80",))
    result = judge(replace(record, plans=(replace(plan, cause=refused),)))
    (verdict,) = of_budget(result, "as_planned", "fail")
    assert result.exit_code is Exit.FAILED and verdict.subject == Subject("fast", "sm_80", "long")
    assert "65,536, found 49,152" in verdict.reason and "where" not in verdict.reason
    result = judge(replace(record, plans=(replace(plan, cause=PlanUnknown("cudaOccupancyMaxActiveClusters")),)))
    assert result.exit_code is Exit.UNMEASURED
    assert [v.required for v in of_budget(result, "as_planned", "unmeasured") if v.subject.arch] == [True]


@pytest.mark.parametrize(
    ("launch", "facts", "archs", "reason"),
    [
        ({"block": (512, 1, 1)}, {"max_threads": 256}, factory.ARCHS, "the kernel's launch bounds allow 256"),
        ({"block": (256, 1, 1)}, {"max_threads": 256}, (), ""),
        ({"block": (128, 2, 1)}, {f"required_block_{a}": n for a, n in zip("xyz", (256, 1, 1), strict=True)},
         factory.ARCHS, "a block of 128 x 2 x 1; the kernel is compiled for 256 x 1 x 1 only"),
        ({"grid": (0, 1, 1)}, {}, factory.ARCHS, "grid.x is 0"),
        ({"grid": (1, 131072, 1)}, {}, factory.ARCHS, "grid.y is 131,072; a launch has 1 to 65,535"),
        ({"grid": (2**31, 1, 1)}, {}, factory.ARCHS, "grid.x is 2,147,483,648"),
        ({"grid": (2**31 - 1, 65535, 65535)}, {}, (), ""),
        ({"block": (1, 1, 256)}, {}, factory.ARCHS, "block.z is 256; a launch has 1 to 64"),
        ({"block": (16640, 1, 1)}, {}, factory.ARCHS, "16,640 threads per block; a block has 1 to 1,024"),
        ({"block": (1024, 1, 1)}, {"registers": 96}, factory.ARCHS, "98,304 registers per block"),
        ({"dynamic_smem": 300_000}, {}, factory.ARCHS, "301,024 bytes of shared memory per block"),
        ({"dynamic_smem": 120_000}, {}, ("sm_89",), "the limit is 101,376"),
        ({"dynamic_smem": 120_000, "cluster": (2, 1, 1)}, {}, ("sm_80", "sm_89"), ""),
        ({"grid": (6, 8, 1), "cluster": (3, 1, 1)}, {}, ("sm_80", "sm_89"), "clusters of 3 blocks; on sm_8"),
        ({"cluster": (3, 1, 1)}, {}, factory.ARCHS, ""),  # the grid is no multiple of it
        ({"cluster": (16, 2, 1)}, {}, factory.ARCHS, "clusters of 32 blocks"),
        ({"cluster": (8, 1, 1)}, {"max_cluster": 4}, factory.ARCHS, "clusters of 8 blocks"),
        ({"grid": (15, 8, 1)}, {f"required_cluster_{a}": n for a, n in zip("xyz", (2, 1, 1), strict=True)},
         factory.ARCHS, ""),
        ({"grid": (10_000, 8, 1), "cooperative": True}, {}, factory.ARCHS, "80,000 cooperative blocks"),
        ({"cooperative": True}, {}, (), ""),
    ],
)  # fmt: skip
def test_a_launch_that_no_gpu_of_an_arch_takes_fails_without_a_budget(
    launch: dict[str, Any], facts: dict[str, int], archs: tuple[str, ...], reason: str
) -> None:
    planned = factory.plan("fast", "mission")
    planned = replace(planned, launches=(replace(planned.launches[0], **launch),))
    kernel = {"registers": 32, **facts}
    record = of(
        [],
        facts=[f for arch in factory.ARCHS for f in factory.facts_of(kernel, "fast", arch=arch, kernel="fast_kernel")],
    )
    result = judge(replace(record, plans=(planned, *(p for p in record.plans if p.variant != "fast"))))
    failed = of_budget(result, "as_planned", "fail")
    assert [v.subject.arch for v in failed] == list(archs)
    assert all(str(v.subject).startswith("fast/mission/fast_kernel") and reason in v.reason for v in failed)
    assert result.exit_code is (Exit.FAILED if archs else Exit.OK)


@pytest.mark.parametrize(
    ("archs", "failed"), [(("sm_90a",), []), (("sm_89", "sm_90a"), ["sm_89"]), ((), ["sm_89"])]
)  # a plan of older runs names none
def test_a_plan_is_judged_on_the_archs_that_it_is_of(archs: tuple[str, ...], failed: list[str]) -> None:
    plan = factory.plan("fast", "mission")
    plan = replace(plan, launches=(replace(plan.launches[0], dynamic_smem=120_000),), archs=archs)
    assert [v.subject.arch for v in of_budget(judge(replace(of([]), plans=(plan,))), "as_planned", "fail")] == failed


def test_a_plan_that_the_machine_stopped_is_no_regression() -> None:
    stopped = replace(factory.plan("fast", "long", error="x"), cause=PlanStopped(-9), archs=("sm_89",))
    result = judge(replace(of([]), plans=(stopped,)))
    (verdict,) = of_budget(result, "as_planned", "unmeasured")
    assert (str(verdict.subject), result.exit_code) == ("fast/long (sm_89)", Exit.INCAPABLE)
    assert "killed by signal 9" in verdict.reason and any("signal 9" in line for line in result.trouble)


def test_a_plan_is_unmeasured_where_the_limits_are_not_known() -> None:
    record = factory.without(of([]), "static_smem", variant="fast", arch="sm_89")
    result = judge(record)
    assert {str(v.subject.arch) for v in of_budget(result, "as_planned", "unmeasured") if v.tier == "static"} == {
        "sm_89"
    }
    assert result.exit_code is Exit.UNMEASURED


def test_nothing_judged_is_nothing_passed() -> None:  # item 5
    peers = factory.suite([factory.peer()], budgets=[REGISTERS])
    for record, variants in ((factory.record(peers), None), (of([REGISTERS]), []), (of([REGISTERS]), ["cudnn"])):
        result = judge(record, variants=variants)
        assert result.exit_code is Exit.UNMEASURED
        assert "nothing was checked" in result.notes[-1]


def test_a_limit_that_is_waived_everywhere_is_called_a_goal() -> None:  # item 17
    waiver = Waiver("registers_limit", ("*",), ("*",), ("*",), ("*",), 96, "everywhere")
    result = judge(of([factory.budget("registers", maximum=64)], [waiver]))
    assert result.exit_code is Exit.OK
    assert any("registers_limit: all 8 verdicts are waived: consider a goal" in n for n in result.notes)


def test_a_time_below_what_any_resource_allows_is_a_failed_measurement() -> None:
    """A launcher that ignores its stream ranked first with 3,226 TFLOP/s."""
    assert not of_budget(judge(of([])), "runs", "fail")
    record = of([], facts=[factory.fact("isolated_p50", 0.3, "fast", shape="mission")])
    (verdict,) = of_budget(judge(record, require="counters"), "runs", "fail")
    assert str(verdict.subject) == "fast/mission"
    assert "void: isolated_p50 0.3 µs is below its" in verdict.reason
    assert judge(record).exit_code == Exit.FAILED


# --- what is told of gaps and waivers ------------------------------------------------------------------


def test_a_planned_fact_without_a_plan_says_so() -> None:
    suite = factory.suite(budgets=[factory.budget("theoretical_occupancy", minimum=10)])
    record = factory.record(suite)
    bare = replace(record, facts=Facts(f for f in record.facts if f.name != "theoretical_occupancy"))
    reasons = {v.reason for v in of_budget(judge(bare), "theoretical_occupancy_limit")}
    assert reasons == {"not recorded"}
    assert {v.reason for v in of_budget(judge(replace(bare, plans=())), "theoretical_occupancy_limit")} == {
        "no launch plan"
    }
    refused = tuple(replace(p, cause=PlanRefused("too long"), launches=()) for p in bare.plans)
    assert {v.reason for v in of_budget(judge(replace(bare, plans=refused)), "theoretical_occupancy_limit")} == {
        "too long"
    }


def test_each_waiver_knows_the_worst_that_it_met() -> None:
    waivers = [factory.waiver("registers_limit", 200, variants=("slow",)), factory.waiver("registers_limit", 200)]
    facts = [
        factory.fact("registers", value, "slow", arch=arch, kernel="slow_kernel")
        for arch, value in zip(factory.ARCHS, (140, 180, 150), strict=True)
    ]
    suite = factory.suite(budgets=[factory.budget("registers", maximum=128)], waivers=waivers)
    uses = judge(factory.record(suite, facts)).waivers
    assert [(u.state, u.worst) for u in uses] == [("holds", 180), ("holds", 180)]
    within = [replace(f, value=v) for f, v in zip(facts, (90, 110, 100), strict=True)]
    uses = judge(factory.record(suite, within)).waivers
    assert [(u.state, u.worst) for u in uses] == [("not needed", 110), ("not needed", 110)]


@pytest.mark.parametrize(("archs", "listed"), [(("sm_90a",), False), (("sm_90a", "sm_89"), True)])
def test_one_waived_value_is_no_goal_yet(archs: tuple[str, ...], listed: bool) -> None:
    suite = factory.suite(
        [factory.variant("slow", archs=archs)], budgets=[factory.budget("registers", maximum=8)],
        waivers=[factory.waiver("registers_limit", 200)], archs=archs,
    )  # fmt: skip
    notes = judge(factory.record(suite)).notes
    assert any("consider a goal" in n for n in notes) == listed


def test_plans_of_what_is_not_judged_hide_none_behind_them() -> None:
    record = of([])
    broken = tuple(
        replace(p, cause=PlanRefused("too long"), launches=()) if p.variant == "split" else p for p in record.plans
    )
    assert [p.variant for p in broken].index("split") > 0
    result = judge(replace(record, plans=broken), variants=["split"])
    assert {v.subject.shape for v in of_budget(result, "as_planned", "fail")} == {"mission", "long"}
    assert not of_budget(judge(replace(record, plans=broken), variants=["fast"]), "as_planned", "fail")


def test_a_value_that_one_waiver_accepts_is_told_with_that_reason_alone() -> None:
    waivers = [
        factory.waiver("registers_limit", 200, reason="another's", variants=("slow",)),
        factory.waiver("registers_limit", 140, reason="first", variants=("fast",)),
        factory.waiver("registers_limit", 130, reason="second", variants=("fast",), expires="2026-01-01"),
        factory.waiver("registers_limit", 130, reason="third", variants=("fast",)),
    ]
    result = judge(of([REGISTERS], waivers, [registers(140)]), today=TODAY)
    (verdict,) = [v for v in of_budget(result, "registers_limit") if v.subject == registers(0).subject]
    assert (verdict.status, verdict.reason) == ("waived", "accepted up to 140: first")


def test_a_static_fact_is_looked_for_in_every_kernel_that_is_known() -> None:
    """Facts of a plan come first in the catalogue and name no kernel of their own: those behind them still count."""
    suite = factory.suite(budgets=[factory.budget("registers", maximum=128)])
    whole = factory.record(suite)
    gap = replace(whole, facts=Facts(f for f in whole.facts if f.name != "registers" or f.subject.variant != "fast"))
    missing = of_budget(judge(gap), "registers_limit", "unmeasured")
    assert {(v.subject.variant, v.subject.kernel) for v in missing} == {("fast", "fast_kernel")}
    assert {v.subject.arch for v in missing} == set(factory.ARCHS)


def test_a_case_that_no_stage_came_to_says_which() -> None:
    record = of([factory.budget("isolated_p50", maximum=1e9), factory.budget("bank_conflicts", maximum=1e9)])
    bare = replace(record, outcomes=(), facts=Facts(f for f in record.facts if f.source in ("cubin", "ptxas", "plan")))
    reasons = {v.budget: v.reason for v in judge(bare, require="timing").verdicts if v.status == "unmeasured"}
    assert reasons["correct"] == "not checked"
    assert reasons["isolated_p50_limit"] == "no bench result of this case"
    assert reasons["bank_conflicts_limit"] == "no profile result of this case"


def test_each_launch_of_an_imported_kernel_keeps_a_counters_limit() -> None:
    suite = factory.suite(
        [factory.variant("taken", kind=ImportedKernel("gemm"), archs=("sm_90a",)), factory.variant("fast")],
        budgets=[factory.budget("bank_conflicts", variants=("taken",), maximum=100)],
    )  # fmt: skip
    facts = [
        factory.fact("bank_conflicts", n, "taken", shape="mission", kernel="gemm", launch=i)
        for i, n in enumerate((90, 110))
    ]
    verdicts = of_budget(judge(factory.bare_record(suite, facts)), "bank_conflicts_limit")
    on_mission = {v.subject.launch: v.status for v in verdicts if v.subject.shape == "mission"}
    assert on_mission == {0: "pass", 1: "fail"}
    (gap,) = [v for v in verdicts if v.subject.shape == "long"]
    assert (gap.status, gap.reason) == ("unmeasured", "the report does not have it")


@pytest.mark.parametrize("scope", [{"device": "L4"}, {"archs": ("sm_89",)}])
@pytest.mark.parametrize("severity", ["limit", "goal"])
def test_an_imported_fact_is_not_held_to_a_budget_for_another_gpu(scope: dict[str, Any], severity: str) -> None:
    taken = factory.variant("taken", kind=ImportedKernel("gemm"), archs=("sm_90a",))
    budget = factory.budget("bank_conflicts", variants=("taken",), maximum=100, severity=severity, **scope)
    fact = factory.fact("bank_conflicts", 110, "taken", shape="mission", kernel="gemm", launch=0)
    suite = factory.suite([taken, factory.variant("fast")], [factory.shape()], [budget])
    result = judge(factory.bare_record(suite, [fact]), require="counters")
    (verdict,) = of_budget(result, "bank_conflicts_limit")
    assert (verdict.status, verdict.value, verdict.required) == ("unmeasured", None, False)
    assert isinstance(verdict.cause, OtherGpu)


def test_a_limit_on_one_shape_covers_a_kernel_on_that_shape_alone() -> None:
    main = factory.budget("theoretical_occupancy", "main", kernels=("*_kernel",), minimum=10)
    combine = factory.budget(
        "theoretical_occupancy", "combine", kernels=("*_combine",), shapes=("mission",), minimum=10
    )
    escaped = [v.subject for v in judge(of([main, combine])).gaps if "names this kernel" in v.reason]
    assert {(s.kernel, s.shape) for s in escaped} == {("split_combine", "long")}
