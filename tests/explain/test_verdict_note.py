"""The use of local memory, and the change needed for one more block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain.verdict_note import local_memory, note_on, what_ifs
from flashcore.model.case import Case
from flashcore.model.cause import cause_text
from flashcore.model.causes import CLUSTER_UNKNOWN
from flashcore.model.record import CaseSubject, CodeSubject, Fact, Launch, Plan, Record, subject_of
from tests import factory

KERNEL = CodeSubject("fast", "sm_90a", kernel="fast_kernel")


def memory(
    value: str | None, note: str, variant: str = "fast", arch: str = "sm_90a", kernel: str = "fast_kernel"
) -> Fact:
    return factory.fact("local_memory", value, variant, arch=arch, kernel=kernel, detail=note)


def ran(name: str, value: float | None, shape: str = "mission", kernel: str | None = "fast_kernel") -> Fact:
    return factory.fact(name, value, "fast", shape=shape, kernel=kernel)


@pytest.mark.parametrize(
    "other",
    [
        memory("spills", "another variant", variant="slow"),
        memory("spills", "another arch", arch="sm_89"),
        memory("spills", "another kernel", kernel="fast_second"),
        memory("none", "it has none"),
        memory(None, "nobody knows"),
    ],
)
def test_local_memory_is_that_of_the_kernel_itself(other: Fact) -> None:
    assert local_memory(factory.bare_record(facts=[other]), KERNEL) == ""
    kernel_memory = memory("spills", "an array in fast.cu:3")
    assert local_memory(factory.bare_record(facts=[other, kernel_memory]), KERNEL) == "an array in fast.cu:3"


def test_without_an_arch_or_a_kernel_the_first_that_is_known_is_told() -> None:
    record = factory.bare_record(facts=[memory("spills", "on sm_89", arch="sm_89"), memory("spills", "on sm_90a")])
    assert local_memory(record, CodeSubject("fast")) == "on sm_89"
    assert local_memory(record, CodeSubject("fast", "sm_90a")) == "on sm_90a"


def test_how_often_it_ran_is_told_of_the_gpus_own_arch() -> None:
    facts = [
        memory("spills", "here"), memory("spills", "there", arch="sm_89"),
        ran("local_load_instructions", None), ran("local_load_instructions", 1234, "long"),
        ran("spill_instructions", 8, "long"),
    ]  # fmt: skip
    record = factory.bare_record(facts=facts)
    assert local_memory(record, KERNEL) == "here; executed: 1,234 loads, 8 of them spills on long"
    assert local_memory(record, subject_of("fast", "mission", "fast_kernel", arch="sm_90a")) == "here"
    assert local_memory(record, replace(KERNEL, arch="sm_89")) == "there"
    # Without an arch it is the record's GPU that ran.
    whole = factory.bare_record(facts=[*facts, ran("local_store_instructions", 5, kernel=None)])
    assert local_memory(whole, CodeSubject("fast")) == "here; executed: 5 stores on mission"


def planned(*launches: Launch) -> tuple[Record, Plan]:
    facts = factory.facts_of({"registers": 96, "static_smem": 1024}, "fast", arch="sm_90a", kernel="fast_kernel")
    return factory.bare_record(facts=facts), Plan("fast", "mission", launches, 0)


LAUNCH = Launch("fast_kernel", (16, 8, 1), (16, 8, 2), (1, 1, 1), 32768)


def test_a_kernel_is_shown_once_for_each_way_it_is_launched() -> None:
    other = replace(LAUNCH, dynamic_smem=0)
    unknown = replace(LAUNCH, kernel="never_built")
    record, plan = planned(LAUNCH, LAUNCH, other, unknown)
    first, second = what_ifs(record, plan, "sm_90a")
    assert first.subject == CaseSubject(Case("fast", "mission"), kernel="fast_kernel", arch="sm_90a")
    assert (first.now.blocks_per_sm, first.then and first.then.fewer_registers) == (2, 16)
    assert second.subject == first.subject and second.now.blocks_per_sm == 2
    assert what_ifs(record, None, "sm_90a") == []


def test_a_cluster_is_its_product_and_its_occupancy_unmeasured() -> None:
    record, plan = planned(replace(LAUNCH, cluster=(2, 2, 1)), replace(LAUNCH, cluster=(4, 1, 1)))
    (result,) = what_ifs(record, plan, "sm_90a")  # both are four blocks
    assert result.then is None and result.now.blocks_per_sm is None and result.now.cause == CLUSTER_UNKNOWN(4)
    assert result.lines == [cause_text(result.now.cause)]


def test_the_next_step_is_told_behind_what_limits_now() -> None:
    record, plan = planned(LAUNCH)
    (result,) = what_ifs(record, plan, "sm_90a")
    assert result.lines[0] == "limited by registers: 16 registers fewer give 3 blocks instead of 2"
    assert len(result.lines) > 1 and "limited by" not in "".join(result.lines[1:])


def test_a_note_is_given_where_it_fits_the_fact() -> None:
    record, plan = planned(LAUNCH)
    record = replace(record, facts=type(record.facts)([*record.facts, memory("spills", "an array")]))
    plans = {Case("fast", "mission"): plan}
    at = subject_of("fast", "mission", "fast_kernel", arch="sm_90a")
    assert note_on(record, plans, "blocks_per_sm", at).startswith("limited by registers: 16 registers fewer")
    assert note_on(record, plans, "stack_bytes", at) == "an array"
    assert note_on(record, plans, "registers", at) == ""
    for partly in (
        replace(at, kernel=None),
        KERNEL,
        replace(at, arch=None),
        replace(at, kernel="other"),
    ):
        assert note_on(record, plans, "theoretical_occupancy", partly) == ""
