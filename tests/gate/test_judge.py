"""The judge: every way a limit can be met, missed, waived or left unmeasured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from flashcore.cli import verdict_table
from flashcore.errors import Exit
from flashcore.explain.verdict import Verdict
from flashcore.gate.judge import Judgement, judge
from flashcore.model.record import Facts, Record, Value
from flashcore.model.suite import Budget, ImportedKernel, Waiver
from tests import factory

TODAY = date(2026, 6, 1)
REGISTERS = factory.budget("registers", maximum=128)


def of(budgets: Iterable[Budget], waivers: Iterable[Waiver] = (), facts: Iterable[Any] = (), **changes: Any) -> Record:
    return factory.record(factory.suite(budgets=budgets, waivers=waivers), facts, **changes)


def of_budget(judgement: Judgement, budget: str, status: str | None = None) -> list[Verdict]:
    return [v for v in judgement.verdicts if v.budget == budget and status in (None, v.status)]


def registers(value: Value | None, variant: str = "fast", arch: str = "sm_89", detail: str = "") -> Any:
    return factory.fact("registers", value, variant, arch=arch, kernel=f"{variant}_kernel", detail=detail)


# --- unmeasured: fail closed --------------------------------------------------------------------


def test_a_table_whose_extension_is_not_installed_is_unmeasured() -> None:
    """Whatever else passes: its limits may be missed."""
    record = of([REGISTERS])
    tables = {"points": {"rows": {"regret": {"p99": 1.05}}}}
    judgement = judge(replace(record, suite=replace(record.suite, tables=tables)))
    (verdict,) = of_budget(judgement, "points", "unmeasured")
    assert verdict.required and "no installed extension provides [points]" in verdict.reason
    assert judge(record).exit_code is Exit.OK and judgement.exit_code is Exit.UNMEASURED


# --- goals --------------------------------------------------------------------------------------


# --- waivers ------------------------------------------------------------------------------------


def test_a_waiver_below_a_range_does_not_cover_a_miss_above_it() -> None:
    budget = factory.budget("registers", minimum=64, maximum=128, archs=("sm_89",), variants=("fast",))
    waiver = factory.waiver("registers_limit", 32)
    assert judge(of([budget], [waiver], [registers(129)])).exit_code is Exit.FAILED
    assert judge(of([budget], [waiver], [registers(40)])).exit_code is Exit.OK


@pytest.mark.parametrize(("kernels", "code"), [(("*",), Exit.OK), (("fast_kernel",), Exit.FAILED)])
def test_a_waiver_of_a_kernel_does_not_cover_a_fact_of_the_whole_variant(kernels: tuple[str, ...], code: Exit) -> None:
    waiver, whole = replace(factory.waiver("registers_limit", 200), kernels=kernels), registers(140)
    whole = replace(whole, subject=replace(whole.subject, kernel=None))
    assert judge(of([REGISTERS], [waiver], [whole])).exit_code is code


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


# --- notes and text -----------------------------------------------------------------------------


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


# --- what is told of gaps and waivers ------------------------------------------------------------------


def test_a_static_fact_is_looked_for_in_every_kernel_that_is_known() -> None:
    """Facts of a plan come first in the catalogue and name no kernel of their own: those behind them still count."""
    suite = factory.suite(budgets=[factory.budget("registers", maximum=128)])
    whole = factory.record(suite)
    gap = replace(whole, facts=Facts(f for f in whole.facts if f.name != "registers" or f.subject.variant != "fast"))
    missing = of_budget(judge(gap), "registers_limit", "unmeasured")
    assert {(v.subject.variant, v.subject.kernel) for v in missing} == {("fast", "fast_kernel")}
    assert {v.subject.arch for v in missing} == set(factory.ARCHS)


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
