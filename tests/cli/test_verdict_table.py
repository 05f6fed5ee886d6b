"""The terminal's table: one failure on many shapes is one row, and no other is buried beneath it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flashcore.cli import verdict_table
from flashcore.gate import judge
from flashcore.model.gate_policy import PREFIX
from flashcore.model.record import Subject
from tests import factory
from tests.gate.test_judge import REGISTERS, TODAY, of, registers


def failed(variant: str, shape: str | None, value: float, budget: str = "theoretical_occupancy") -> judge.Verdict:
    """A failed limit on a kernel."""
    about = Subject(variant, "sm_89", shape=shape, kernel="kernel")
    return judge.Verdict(
        budget=budget, fact=budget, subject=about, tier="static", status="fail", value=value, unit="%",
        limit="≥ 30 %", source="a document",
    )  # fmt: skip


def rows(*verdicts: judge.Verdict) -> list[str]:
    """The failures of the table, the title first."""
    made = judge.judge(factory.record())
    made = replace(made, verdicts=verdicts)
    return verdict_table.render(made).split("\n\n")[0].splitlines()


def test_the_same_on_several_shapes_is_one_row_and_counts_in_full() -> None:
    title, *results = rows(*[failed("tiles", f"s{i}", 16.7) for i in range(11)], failed("other", "s0", 10.0))
    assert title == "FAILED (12)"
    assert len(results) == 2
    assert "tiles/s0/kernel (sm_89) and 10 more shapes" in results[0]
    assert "other/s0/kernel (sm_89) " in results[1] and "more" not in results[1]


def test_values_that_differ_stand_apart() -> None:
    _, *results = rows(failed("tiles", "s0", 16.7), failed("tiles", "s1", 16.6999), failed("tiles", "s2", 16.7))
    assert ["and 1 more shape" in line for line in results] == [True, False]


def test_a_spill_is_one_row_with_its_variants_and_archs() -> None:
    verdicts = [
        replace(failed(variant, None, value, fact), fact=fact, subject=Subject(variant, arch, kernel="n::k<64>"))
        for variant, arch, value in (("tiles", "sm_90a", 8.0), ("wide", "sm_90a", 64.0), ("tiles", "sm_100a", 8.0))
        for fact in ("spill_store_bytes", "sass_local_loop")
    ]
    title, row = rows(*verdicts)
    assert title == "FAILED (6)"
    assert "spill_store_bytes, sass_local_loop" in row and "wide/n::k<64>, tiles/n::k<64> (sm_90a, sm_100a)" in row
    assert "64 %" in row  # the worst


def test_quiet_shows_what_fails_and_the_result() -> None:
    result = judge.judge(of([REGISTERS], facts=[registers(140)]), today=TODAY)
    first, *_, last = verdict_table.render(result, quiet=True).split("\n\n")
    assert first.startswith("FAILED") and last.startswith("gate FAILED")
    passed = judge.judge(of([REGISTERS]), today=TODAY)
    assert len(verdict_table.render(passed, quiet=True).splitlines()) == 1


def test_what_is_left_out_is_counted_by_verdicts() -> None:
    many = [failed(f"v{i}", f"s{j}", float(i)) for i in range(50) for j in range(3)]
    title, *results = rows(*many)
    assert title == "FAILED (150)"
    assert len(results) == 49 and results[-1].strip() == "… and 6 more"


def test_waivers_of_a_budget_with_one_reason_are_one_row() -> None:
    waivers = [
        factory.waiver("registers_limit", 150, variants=("slow",), expires="2027-02-01"),
        factory.waiver("registers_limit", 140, variants=("fast",), expires="2027-01-01"),
        factory.waiver("registers_limit", 130, variants=("split",), reason="another"),
    ]
    missed = [registers(140), registers(140, arch="sm_80"), registers(150, "slow"), registers(130, "split", "sm_90a")]
    text = verdict_table.render(judge.judge(of([REGISTERS], waivers, missed), today=TODAY))
    title, *results = next(part for part in text.split("\n\n") if part.startswith("waived")).splitlines()
    assert title == "waived (4)"
    assert [re.split("  +", row.strip()) for row in results] == [
        ["registers_limit", "3 misses", "slow: accepted 150 and 1 more", "known, to be mended", "until 2027-01-01"],
        ["registers_limit", "1 miss", "split: accepted 130", "another"],
    ]


def test_the_table_says_it_all() -> None:
    budgets = [
        REGISTERS,
        factory.budget("isolated_p50", maximum=30),
        factory.goal("isolated_p50", maximum=30, device="L4"),
    ]
    text = verdict_table.render(judge.judge(of(budgets, facts=[registers(140)]), today=TODAY))
    assert text.splitlines()[0] == "FAILED (5)"
    assert "fast/fast_kernel (sm_89)" in text
    assert "≤ 128" in text
    assert text.splitlines()[-1].startswith("gate FAILED: 5 failed")
    assert text.splitlines()[-1].endswith("(exit 1)")


def test_the_table_sums_up_each_goal() -> None:
    budgets = [
        factory.goal("isolated_p50", maximum=30),
        factory.goal("isolated_p50", "l4_goal", maximum=30, device="L4"),
    ]
    text = verdict_table.render(judge.judge(of(budgets, times={"slow": 400.0, "fast": 20.0}), today=TODAY))
    (ours,) = [x for x in text.splitlines() if "isolated_p50_goal" in x]
    assert "reached by 4 of 6" in ours
    assert "farthest: slow/" in ours
    assert "7 % of the way" in ours
    (theirs,) = [x for x in text.splitlines() if "l4_goal" in x]
    assert "reached by 0 of 6, 6 unmeasured" in theirs
    assert "only for L4" in theirs


@pytest.mark.parametrize(
    ("parts", "budget", "text"),
    [
        ([0.5, 0.25], "fast_enough", "reached by 0 of 2 farthest: v1/s (sm_89), 7 %, 25 % of the way"),
        ([1.0], "fast_enough", "reached by 1 of 1"),
        ([None], "fast_enough", "reached by 0 of 1, 1 unmeasured"),
        ([1.0, 0.5], f"{PREFIX}registers", "reached by 1 of 2 farthest: v1/s (sm_89), 7 %, 50 % of the way"),
        ([1.0, 1.0], f"{PREFIX}registers", None),  # a fact that is only shown, and did not change
    ],
)
def test_a_goals_line_has_what_is_farthest_from_it(parts: list[float | None], budget: str, text: str | None) -> None:
    goals = [
        replace(
            failed(f"v{i}", "s", 7.0, budget), severity="goal", progress=part, subject=Subject(f"v{i}", "sm_89", "s"),
            status="unmeasured" if part is None else "pass" if part == 1 else "fail",
        )
        for i, part in enumerate(parts)
    ]  # fmt: skip
    made = replace(judge.judge(factory.record()), verdicts=tuple(goals))
    shown = [" ".join(x.split()) for x in verdict_table.render(made).splitlines() if budget in x]
    assert shown == ([] if text is None else [f"{budget} ≥ 30 % {text}"])


def test_a_subject_of_a_long_template_keeps_its_begin_and_its_arch() -> None:
    verdict = failed("fast", None, 20)
    kernel = f"gemm<{'Tile,' * 200}>"
    _, row = rows(replace(verdict, subject=Subject("fast", "sm_90a", kernel=kernel)))
    assert "fast/gemm<Tile,Tile" in row and "Tile,> (sm_90a)" in row and len(row) < 220
