"""Advice: each rule names its planted cases, is silent on their neighbors, and bounds the gain by the case's time."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from flashcore.explain.advice import Advice, advice, for_fact, precedents, rules, sentence, unadvised
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseSubject, CodeSubject, Facts, Roof
from flashcore.records import lookup, store
from tests import factory
from tests.conftest import ROOT, two_names
from tests.support.advised import COUNTED, KERNEL, SOUND, Values, record, stall

FAST = Case("fast", "mission")


def advised(values: Values, *, gpu: bool = True) -> tuple[Advice, ...]:
    return advice(Readings(record(values, gpu=gpu)), FAST)


def names(values: Values) -> list[str]:
    return [x.rule for x in advised(values)]


SPILLS: Values = {"spill_store_bytes": 736, "spill_load_bytes": 788, "local_memory": "spills"}


BUSY_PIPES: Values = {**COUNTED, "stall_share_mio_throttle": 40.0, "stall_share_short_scoreboard": 30.0,
                      "stall_share_math_pipe_throttle": 0.0, "stall_share_lg_throttle": 20.0,
                      "shared_wavefronts": 0.0, "instructions": 1e6, "bank_conflicts": 0.0,
                      "bank_conflicts_load": 0.0, "bank_conflicts_store": 0.0}  # fmt: skip
#: Conflicts in shared memory that are neither of loads nor of stores.
SERIAL: Values = {**BUSY_PIPES, "shared_wavefronts": 1e6, "bank_conflicts": 9e5, "stall_share_lg_throttle": 0.0,
                  "stall_share_short_scoreboard": 5.0}  # fmt: skip
#: The pipe of special functions is busiest, beside shared memory.
SPECIAL: Values = {**BUSY_PIPES, "sass_mufu": 16, "shared_wavefronts": 2e5, "sm_throughput": 90.0, "fma_active": 30.0,
                   "alu_active": 20.0, "lsu_active": 20.0, "tensor_active": 0.0, "op_dadd": 0, "op_dmul": 0,
                   "op_dfma": 0}  # fmt: skip
#: Rule, what is planted, and a neighbor that lacks only the defect.
CASES: list[tuple[str, Values, Values]] = [
    ("launch-bounds", {**SPILLS, "max_threads": 1024}, {**SPILLS, "max_threads": 256}),
    ("launch-bounds", {**SPILLS, "max_threads": 1024, **COUNTED}, {"max_threads": 1024, **COUNTED}),
    ("spills", SPILLS, {**SPILLS, "max_threads": 1024}),
    ("spills", {**SPILLS, "max_threads": 256}, {"max_threads": 256}),
    ("array-index", {"stack_bytes": 128, "local_memory": "array"}, {"stack_bytes": 128, "local_memory": "stack frame"}),
    ("array-index", {**SPILLS, "local_memory": "spills and array"}, SPILLS),
    ("serialized-wgmma", {"compiler_warnings": 1, "sass_hgmma": 8}, {"compiler_warnings": 0, "sass_hgmma": 8}),
    ("few-blocks", {"blocks": 16}, {"blocks": 132}),
    ("few-blocks", {"blocks": 64, **COUNTED}, {"blocks": 131, **COUNTED}),
    ("tail-wave", {"blocks": 600}, {"blocks": 528}),
    ("tail-wave", {"blocks": 133, "blocks_per_sm": 1}, {"blocks": 132, "blocks_per_sm": 1}),
    ("partial-warp", {"threads": 100}, {"threads": 96}),
    ("one-warp-barrier", {"threads": 32}, {"threads": 64}),
    ("one-warp-barrier", {"threads": 32}, {"threads": 32, "sass_bar": 0}),
    ("small-blocks", {"threads": 32, "theoretical_occupancy": 50.0, "occupancy_limiter": "blocks"},
     {"threads": 32, "theoretical_occupancy": 50.0, "occupancy_limiter": "registers"}),
    ("occupancy", {"registers": 168, "blocks_per_sm": 1, "theoretical_occupancy": 12.5},
     {"registers": 64, "theoretical_occupancy": 50.0}),
    ("occupancy", {"registers": 168, "theoretical_occupancy": 12.5, **stall("long_scoreboard")},
     {"registers": 168, "theoretical_occupancy": 12.5, **stall("long_scoreboard", 5.0)}),
    ("bank-conflicts", {"bank_conflicts": 5e5, "shared_wavefronts": 1e6, **stall("mio_throttle")},
     {"bank_conflicts": 5e4, "shared_wavefronts": 1e6, **stall("mio_throttle")}),
    ("no-ldmatrix", {"sass_ldsm": 0}, {"sass_ldsm": 16}),
    ("no-tensor-cores", {"formula_flop": 1e9, "formula_tensor_flop": 1e9, "tensor_instructions": 0},
     {"formula_flop": 1e9, "formula_tensor_flop": 1e9, "tensor_instructions": 1000}),
    ("no-tensor-cores", {"formula_flop": 1e9, "formula_tensor_flop": 1e9, "tensor_instructions": 1000,
                         "tensor_hfma2_instructions": 1000},
     {"formula_flop": 1e9, "formula_tensor_flop": 1e9, "tensor_instructions": 1000, "tensor_hfma2_instructions": 0}),
    ("narrow-loads", {"sass_split_ldg": 4, "l1_bytes": 2e6, "formula_bytes": 1e6},
     {"sass_split_ldg": 4, "l1_bytes": 1e6, "formula_bytes": 1e6}),
    ("narrow-loads", {"sass_split_ldg": 4}, {"sass_split_ldg": 0}),
    ("narrow-stores", {"sass_split_stg": 4}, {"sass_split_stg": 0}),
    ("uncoalesced", {"load_sectors": 32.0, "store_sectors": 4.0, "sass_ldg_128": 0},
     {"load_sectors": 4.0, "store_sectors": 4.0, "sass_ldg_128": 0}),
    ("uncoalesced", {"load_sectors": 16.0, "store_sectors": 4.0, "sass_ldg_128": 0, "sass_ldgsts": 0},
     {"load_sectors": 20.0, "store_sectors": 4.0, "sass_ldg_128": 0, "sass_ldgsts": 16}),  # 16 bytes per thread
    ("uncoalesced", {"load_sectors": 4.0, "store_sectors": 32.0}, {"load_sectors": 16.0, "store_sectors": 16.0}),
    ("divergence", {"active_threads": 8.0, "instructions": 1e6}, {"active_threads": 30.0, "instructions": 1e6}),
    ("divergence", {"active_threads": 14.0}, {"active_threads": 14.0, "threads": 36}),
    ("atomics", {"sass_atom": 8, **BUSY_PIPES}, {"sass_atom": 0, **BUSY_PIPES}),
    ("atomics", {"sass_atom": 8, **BUSY_PIPES}, {"sass_atom": 1, **BUSY_PIPES}),
    ("atomics", {"sass_atom": 8, **SERIAL}, {"sass_atom": 8, **SERIAL, "bank_conflicts_load": 9e5}),
    ("bank-conflicts", {"sass_atom": 8, **SERIAL, "bank_conflicts_load": 9e5}, {"sass_atom": 8, **SERIAL}),
    ("special-functions", SPECIAL, {**SPECIAL, "fma_active": 85.0}),
    ("special-functions", {**SPECIAL, "xu_active": 60.0, "op_dadd": 9}, {**SPECIAL, "xu_active": 40.0}),
    ("special-functions", SPECIAL, {**SPECIAL, "op_dfma": 4096}),
    ("constant-index", {"sass_indexed_ldc": 4, **BUSY_PIPES}, {"sass_indexed_ldc": 0, **BUSY_PIPES}),
    ("special-functions", {"sass_mufu": 16, **BUSY_PIPES}, {"sass_mufu": 16, **BUSY_PIPES, "issue_active": 80.0}),
    ("special-functions", {"sass_mufu": 16, **BUSY_PIPES}, {"sass_mufu": 16, **BUSY_PIPES, "shared_wavefronts": 2e5}),
    ("no-async-copy", {"sass_ldgsts": 0}, {"sass_ldgsts": 0, "sass_utmaldg": 2}),
    ("reread", {"dram_bytes": 4e6, "formula_bytes": 1e6}, {"dram_bytes": 1.2e6, "formula_bytes": 1e6}),
    ("double-precision", {"op_dadd": 0, "op_dmul": 0, "op_dfma": 4096}, {"op_dadd": 0, "op_dmul": 0, "op_dfma": 0}),
    ("local-memory", {**COUNTED, "local_memory": None, "local_load_instructions": 3e4, "local_store_instructions": 6e3,
                      "instructions": 3e5},
     {**COUNTED, "local_memory": None, "local_load_instructions": 0, "local_store_instructions": 0,
      "instructions": 3e5}),
    ("dram-bound", {**COUNTED, "dram_throughput": 85.0}, {**COUNTED, "dram_throughput": 40.0}),
    ("l2-bound", {**COUNTED, "l2_throughput": 85.0}, {**COUNTED, "l2_throughput": 40.0}),
    ("shared-bound", {**COUNTED, "shared_wavefronts": 0.8 * 132 * 19_800}, {**COUNTED, "shared_wavefronts": 1000}),
    ("tensor-bound", {**COUNTED, "tensor_active": 85.0}, {**COUNTED, "tensor_active": 40.0}),
    ("exp-bound", {**COUNTED, "formula_exp": 3.3e7}, {**COUNTED, "formula_exp": 1e6}),
    ("issue-bound", {**COUNTED, "issue_active": 85.0, "instructions_issued": 0.85 * 4 * 132 * 19_800}, COUNTED),
    ("imbalance", {**COUNTED, "instructions_issued": 0.05 * 4 * 132 * 19_800}, COUNTED),
    ("imbalance", {**COUNTED, "instructions_issued": 0.05 * 4 * 132 * 19_800},
     {**COUNTED, "instructions_issued": 0.05 * 4 * 132 * 19_800, "ncu_duration": 5_000}),  # starting takes as long
    ("serial-section", {**stall("barrier"), "active_threads": 8.0}, {**stall("barrier"), "active_threads": 32.0}),
    ("serial-section", {**stall("barrier"), "active_threads": 8.0}, {**stall("barrier", 20.0), "active_threads": 8.0}),
    *((rule.id, stall(rule.removes[0].removeprefix("stall_")), stall(rule.removes[0].removeprefix("stall_"), 5.0))
      for rule in rules() if rule.id.startswith("stall-")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "planted", "neighbor"), CASES)
def test_a_rule_names_its_planted_case_and_no_neighbor(rule: str, planted: Values, neighbor: Values) -> None:
    assert rule in names(planted)
    assert rule not in names(neighbor)


def test_nothing_is_advised_on_a_sound_kernel() -> None:
    assert names({}) == []


def test_a_rule_is_silent_if_its_facts_are_unmeasured() -> None:
    assert "bank-conflicts" not in names({"bank_conflicts": 5e5, "shared_wavefronts": None})
    assert "spills" not in names({**SPILLS, "spill_load_bytes": None})


@pytest.mark.parametrize(("rule", "launches", "us"), [("launch", 1, 3.0), ("many-launches", 2, 1.0)])
def test_launches_are_advised_on_by_their_share_of_the_time(rule: str, launches: int, us: float) -> None:
    def named(us: float) -> dict[str, Advice]:
        roofs = (Roof("launch", us, "us", "measured", factory.GPU),)
        case = replace(record({**COUNTED, "kernel_launches": launches}), roofs=roofs)
        return {x.rule: x for x in advice(Readings(case), FAST)}

    assert named(us)[rule].gain == pytest.approx(10 * launches * us)
    assert rule not in named(us / 3)


@pytest.mark.parametrize(("planted", "neighbor"), [(16, 132), (600, 528)])
def test_idle_sms_need_no_gpu(planted: int, neighbor: int) -> None:
    without = advised({"blocks": planted}, gpu=False)
    assert without[0].evidence[0][:2] == ("blocks", planted)
    assert without[0].gain == pytest.approx(100 * (1 - 16 / 132) if planted == 16 else 100 * (1 - 600 / 1056))
    assert not advised({"blocks": neighbor}, gpu=False)


def test_the_gain_is_the_part_of_the_time_that_the_change_can_remove() -> None:
    first = advised(stall("barrier", 50.0))[0]
    assert first.rule == "stall-barrier" and first.limiter == "stall_barrier"
    assert first.gain == pytest.approx(0.5 * 0.8 * 90, rel=0.01)  # stalls × cycles without issue × SMs with warps
    assert "stall_barrier 36.0 %" in first.bound and "saves at most 36 % of its time" in sentence(first)


def test_the_largest_gain_comes_first_and_tiny_ones_are_left_out() -> None:
    both = advised({**stall("barrier", 20.0), "stall_share_wait": 50.0})
    assert [x.rule for x in both] == ["stall-wait", "stall-barrier"]
    assert [x.rule for x in advised({**stall("barrier", 20.0), "instructions_issued": 1e5})] == ["imbalance"]


def test_a_cause_in_the_code_comes_before_a_busy_resource_that_takes_more_time() -> None:
    busy = {**COUNTED, "l2_throughput": 85.0, "formula_bytes": 1e6, "stall_share_long_scoreboard": 60.0}
    reread = advised({**busy, "dram_bytes": 4e6})
    assert [x.rule for x in reread][:2] == ["reread", "l2-bound"]
    assert (reread[0].gain or 0) < (reread[1].gain or 0) and not reread[0].effect and reread[1].effect
    small = advised({**busy, "dram_bytes": 4e6, "stall_share_long_scoreboard": 12.0})
    assert small[0].rule == "l2-bound", "a cause of a few percent is not named first"


def test_a_specific_cause_comes_before_the_stall_that_it_leads_to() -> None:
    assert names({**stall("mio_throttle"), "bank_conflicts": 5e5, "shared_wavefronts": 1e6})[0] == "bank-conflicts"
    assert names({**stall("long_scoreboard"), **SPILLS, "max_threads": 1024})[0] == "launch-bounds"


def test_a_sentence_has_the_action_the_evidence_and_the_bound() -> None:
    [spilled] = advised({**SPILLS, "max_threads": 1024})
    assert "__launch_bounds__(256)" in sentence(spilled) and "spill_store_bytes 736 B" in sentence(spilled)
    assert spilled.gain is None and "gain unmeasured: nothing was timed" in sentence(spilled)
    [timed] = advised({**SPILLS, "max_threads": 1024, "isolated_p50": 40.0})
    assert "gain unmeasured: its part of the time was not counted" in sentence(timed)
    assert spilled.subject == CaseSubject(FAST, kernel=KERNEL, arch="sm_90a")


def test_counters_do_not_count_for_another_arch() -> None:
    assert advice(Readings(record(stall("barrier"))), FAST, "sm_89") == ()


def test_a_fact_leads_to_its_advice() -> None:
    readings = Readings(record({**SPILLS, "max_threads": 1024}))
    assert (x := for_fact(readings, "spill_store_bytes", CodeSubject("fast", "sm_90a", kernel=KERNEL)))
    assert x.rule == "launch-bounds"
    assert for_fact(readings, "sass_bar", CodeSubject("fast", "sm_90a", kernel=KERNEL)) is None
    assert for_fact(readings, "spill_store_bytes", CodeSubject("fast", "sm_89", kernel=KERNEL)) is None


def test_kernels_with_equal_evidence_share_a_line_and_each_leads_to_it() -> None:
    one = record({**SPILLS, "max_threads": 1024})
    again = [replace(f, subject=replace(f.subject, kernel="other")) for f in one.facts if f.subject.kernel]
    readings = Readings(replace(one, facts=Facts([*one.facts, *again])))
    assert [x.subject.kernel for x in advice(readings, FAST)] == [KERNEL]
    x = for_fact(readings, "spill_store_bytes", CodeSubject("fast", "sm_90a", kernel="other"))
    assert x and x.subject.kernel == "other"


def test_every_rule_is_planted_and_names_facts_of_the_catalogue() -> None:
    planted = {rule for rule, *_ in CASES} | {"launch", "many-launches"}
    assert {r.id for r in rules()} == planted and len(planted) >= 25
    assert all(name in FACTS or name == "sms" for r in rules() for name in r.facts)


def test_a_launch_stands_in_for_the_code_of_imported_kernels() -> None:
    static = dict.fromkeys(SOUND, None)
    names_of = names({**static, **COUNTED, "blocks": None, "ncu_grid_size": 64, "ncu_block_size": 100})
    assert {"few-blocks", "partial-warp"} <= {*names_of}


def test_the_remedy_is_a_step_that_the_variant_was_not_made_from() -> None:
    line = {v.name: v.parent for v in two_names().suite.variants.values()}
    readings = Readings(two_names())
    first = advice(readings, Case("register_o", "mission"))[0]
    assert first.rule == "few-blocks" and first.remedy and first.gain == pytest.approx(48.4, abs=0.1)
    assert "split_keys cut idle sms from 48 to 3 % and was 1.32 × faster than register_o" in sentence(first)
    assert line["split_keys"] == "register_o"
    others = precedents(readings, "idle_sms", CaseSubject(Case("split_keys", "mission")))
    assert "split_keys" not in {r.variant for r in others}


def test_a_remedy_at_an_identical_shape_counts() -> None:
    first = advice(Readings(two_names()), Case("cluster_keys", "d64_s512_h8"))[0]  # mission under another name
    assert first.remedy and first.remedy.variant == "mma_split_keys"
    nearer = {x.rule: x.remedy for x in advice(Readings(two_names()), Case("tma_wgmma", "d64_s512_h8"))}["few-blocks"]
    assert nearer and nearer.variant == "attention"  # at its own shape; mma_split_keys is at the other one


def test_no_advice_on_references() -> None:
    assert advice(Readings(factory.record()), Case("cudnn", "mission")) == ()


def test_a_case_is_advised_on_once_however_many_facts_ask() -> None:
    """A library has thousands of kernels, and the gate asks for each failure."""
    readings = Readings(record(SPILLS))
    first = advice(readings, FAST, "sm_90a")
    assert for_fact(readings, "spill_store_bytes", CaseSubject(FAST, kernel=KERNEL, arch="sm_90a")) is not None
    assert advice(readings, FAST, "sm_90a") is first


@pytest.mark.slow
def test_no_advice_saves_more_than_what_lies_above_the_floor() -> None:
    readings = Readings(two_names())
    capped = 0
    for subject in readings.bounds:
        gap = readings.gap(subject.case)
        for item in advice(readings, subject.case) if gap else ():
            assert item.gain is None or (gap and item.gain <= 100 * (1 - 1 / gap.ratio) + 1e-9)
            capped += "above its floor" in item.bound
    assert capped, "a record in which the floor bounds some advice"


@pytest.mark.slow
def test_the_largest_part_of_the_time_has_advice_or_a_line_that_says_so() -> None:
    readings, said = Readings(two_names()), set()
    for case in (subject.case for subject in readings.bounds):
        part, items = time_parts(readings, case).next, advice(readings, case)
        removable = {kind for rule in rules() for x in items if x.rule == rule.id for kind in rule.removes}
        missing = unadvised(readings, case)
        if part:
            assert (missing is None) == (part.kind in removable)
            said.add(missing is None)
    assert said == {True, False}


def test_the_floors_resource_counts_by_what_it_takes_beyond_the_floor() -> None:
    """A case near its floor of DRAM bytes gains nothing from DRAM; the next part is named instead."""
    values: Values = {
        **stall("barrier", 15.0),
        "dram_throughput": 80.0,
        "formula_bytes": 4e7,
        "formula_flop": 1e6,
        "instructions_issued": 0.2 * 4 * 132 * 19_800,
    }
    cold = record({**values, "cold_p50": 10.0})
    shape = replace(cold.suite.shapes["mission"], rank_by="cold")
    cold = replace(cold, suite=replace(cold.suite, shapes={**cold.suite.shapes, "mission": shape}))
    bound = time_parts(Readings(cold), FAST)
    assert bound.limiter and bound.limiter.kind == "dram" and bound.floor[0] == "dram" and bound.floor[1] > 75
    assert bound.next and bound.next.kind == "stall_barrier"


@pytest.mark.parametrize(("suite", "right"), [("defects", 37), ("defects_second", 37)])
def test_the_first_advice_names_most_planted_defects(suite: str, right: int) -> None:
    """Of 43 and 40 kernels with one defect each, as an H200 measured them."""
    readings = Readings(store.read(lookup.find(ROOT, str(ROOT / "benchmarks" / "results" / f"{suite}.run.zip"))))
    planted = tomllib.loads((ROOT / "benchmarks" / suite / "defects.toml").read_text(encoding="utf-8"))
    first = {
        name: advice(readings, Case(name, x["shape"]))[:1] for name, x in planted.items() if "costs_nothing" not in x
    }
    assert sum(x.rule in planted[name]["expected"] for name, items in first.items() for x in items) >= right
