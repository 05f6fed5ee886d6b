"""The limiter of a case: correct for kernels with a known limiter, and none without measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from flashcore.explain.limiter import NEAR, limiter, limiters, phase_shares, remedies
from flashcore.explain.readings import Readings
from flashcore.model.causes import Sampled
from flashcore.model.record import Fact, Facts, Record, Subject
from tests import factory
from tests.conftest import ROOT, latest
from tests.recorded import RECORDED

MISSION = Subject("fast", shape="mission")


def record(*facts: Fact, **counters: float | None) -> Record:
    """The usual run whose case fast/mission has these counters and no others."""
    full = factory.record()
    kept = [f for f in full.facts if f.subject != MISSION or f.source not in ("ncu", "formula")]
    kept = [f for f in kept if f.name != "blocks" or f.subject.variant != "fast"]
    case_facts = factory.facts_of(counters, "fast", shape="mission")
    return replace(full, facts=Facts([*kept, *case_facts, *facts]))


def text(*facts: Fact, **counters: float | None) -> str:
    return limiter(Readings(record(*facts, **counters)), "fast", "mission")


def kinds(**counters: float | None) -> list[str]:
    return [x.kind for x in limiters(Readings(record(**counters)), "fast", "mission").limiters]


COUNTED: Mapping[str, float | None] = {"ncu_duration": 10_000, "elapsed_cycles": 20_000, "issue_active": 20.0}


def test_a_case_is_worked_out_once_for_the_same_readings() -> None:
    recorded = Readings(record(**COUNTED))
    assert limiters(recorded, "fast", "mission") is limiters(recorded, "fast", "mission")
    assert limiters(recorded, "fast", "mission") != limiters(recorded, "fast", "long")
    assert limiters(Readings(record(**{**COUNTED, "issue_active": 90.0})), "fast", "mission") != limiters(
        recorded, "fast", "mission"
    )


# --- kernels whose limiter is known -----------------------------------------------------------------


def published(suite: str) -> Readings:
    found = latest(ROOT / "profiles", suite)
    assert found is not None
    return Readings(found)


@pytest.fixture(scope="module")
def roofs() -> Readings:
    return published("roofs")


@pytest.mark.parametrize(
    ("variant", "shape", "kind", "words"),
    [
        ("dram_read_u4", "dram_read_h200", "dram", "DRAM at 9. % of its roof"),
        ("dram_copy_bulk_t16r3", "dram_copy_h200", "dram", "DRAM at [89]. %"),
        ("exp2", "exp2_h200", "exp", "special functions at 9. %"),
        ("shared_read", "shared_read_h200", "shared", "shared memory at 9. %"),
        ("shared_ldmatrix", "shared_read_h200", "shared", "shared memory at 9. %"),
        ("l1_read", "l1_read_h200", "l1", "L1 at 9. %"),
        ("l2_read_u4", "l2_read_h200", "l2", r"L2 \([\d,]+ GB/s; no roof is known\)"),
        ("fp32_fma", "fp32_fma_h200", "fp32", "fp32 pipes at 9. %"),
        ("wgmma_fp8", "wgmma_fp8_h200", "fp8_tensor", "fp8 tensor cores at [89]. %"),
        ("integer_add", "integer_add_h200", "issue", "issue slots"),
        ("barrier_block", "barrier_t128_h200", "barrier", r"barriers \(1[\d.]+ ns each; no roof is known\)"),
        ("barrier_block", "barrier_t1024_h200", "barrier", r"barriers \([34][\d.]+ ns each"),
    ],
)
def test_the_published_roofs_are_held_by_what_they_are_made_of(
    roofs: Readings, variant: str, shape: str, kind: str, words: str
) -> None:
    ranked = limiters(roofs, variant, shape)
    assert ranked.limiters[0].kind == kind and re.match(words, ranked.text)
    assert "no counters" in ranked.note


def test_a_launch_is_a_bound_and_no_limiter(roofs: Readings) -> None:
    ranked = limiters(roofs, "launch", "launch_h200")
    assert ranked.limiters == () and re.fullmatch(r"nothing: 32 empty launches, 0\.[57]\d+ µs each", ranked.text)


@pytest.mark.parametrize(("suite", "cases"), [("attention", 90), ("attention_general", 70)])
def test_every_case_of_a_published_run_with_counters_has_limiters_with_evidence(suite: str, cases: int) -> None:
    recorded = published(suite)
    counted = [f.subject for f in recorded.record.facts.named("ncu_duration") if f.value and f.subject.kernel is None]
    assert len(counted) >= cases
    for subject in counted:
        ranked = limiters(recorded, subject.variant, subject.shape or "")
        assert ranked.limiters, subject
        waits = [x.rank for x in ranked.limiters if x.kind.startswith(("stall_", "idle_"))]
        assert waits == sorted(waits, reverse=True) and all(x.evidence and x.facts for x in ranked.limiters)
        assert not any(x.kind == "launch" for x in ranked.limiters)


def test_the_ladders_cases_have_the_limiters_that_were_seen() -> None:
    recorded = published("attention")
    text = limiters(recorded, "tma_split_keys", "mission").text
    assert re.match(r"wait stalls \d+ %; load phase \d+ ± \d %; ", text)
    assert limiters(recorded, "register_o", "mission").limiters[0].brief == "64 blocks on 132 SMs"
    best = remedies(recorded, "mission")["idle_sms"][0]
    assert (best.variant, best.parent) == ("mma_split_keys", "xor_swizzle") and best.faster > 1.4
    assert best.after < 5 < 50 < best.before


PROFILED = json.loads((RECORDED / "limits_h200.json").read_bytes())


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("dram_read_u4/dram_read_h200", ["dram", "l2"]),
        ("dram_copy/dram_copy_h200", ["dram", "l2"]),
        ("l2_read_u8/l2_read_h200", ["l2", "stall_long_scoreboard"]),
        ("l1_read/l1_read_h200", ["l1", "stall_lg_throttle"]),
        ("shared_read/shared_read_h200", ["shared", "stall_mio_throttle"]),
        ("planted_conflict/shared_read_h200", ["bank_conflicts", "stall_mio_throttle"]),
        ("fp32_fma/fp32_fma_h200", ["issue", "fp32"]),
        ("exp2/exp2_h200", ["exp", "stall_mio_throttle"]),
        ("integer_add/integer_add_h200", ["issue", "stall_math_pipe_throttle"]),
        ("mma_sync_fp16/mma_sync_fp16_h200", ["fp16_tensor", "stall_wait"]),
        ("wgmma_fp16/wgmma_fp16_h200", ["fp16_tensor", "shared"]),
        ("barrier_block/barrier_t128_h200", ["stall_barrier", "stall_wait"]),
        ("barrier_block/barrier_t1024_h200", ["stall_barrier", "stall_mio_throttle"]),
    ],
)
def test_profiled_kernels_are_held_by_what_they_are_made_of(case: str, kinds: list[str]) -> None:
    """Kernels of the roofs suite as an H200 counted them; one with bank conflicts planted in it."""
    name, shape = case.split("/")
    suite = factory.suite([factory.variant(name, roof=PROFILED[case]["roof"])], [factory.shape(shape)])
    facts = factory.facts_of(PROFILED[case]["facts"], name, shape=shape)
    ranked = limiters(Readings(factory.bare_record(suite, facts)), name, shape)
    assert [x.kind for x in ranked.limiters[:2]] == kinds and ranked.note == ""


# --- counters ---------------------------------------------------------------------------------------


def test_the_largest_share_of_stalls_is_named() -> None:
    assert text(**COUNTED, stall_share_barrier=41.0, stall_share_wait=12.0) == "barrier stalls 41 %; wait stalls 12 %"


def test_warps_that_could_issue_are_held_by_nothing() -> None:
    assert kinds(**COUNTED, stall_share_not_selected=30.0, stall_share_wait=10.0) == ["stall_wait"]


def test_stalls_count_as_far_as_nothing_is_issued_meanwhile() -> None:
    busy = {**COUNTED, "issue_active": 90.0, "stall_share_wait": 50.0}
    assert kinds(**busy) == ["issue", "stall_wait"]
    assert limiters(Readings(record(**busy)), "fast", "mission").limiters[1].rank == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("counters", "kind"),
    [
        ({"dram_throughput": 93.0}, "dram"),
        ({"l2_throughput": 81.0}, "l2"),
        ({"tensor_active": 70.0}, "fp16_tensor"),
        ({"shared_wavefronts": 0.9 * 132 * 20_000, "bank_conflicts": 0.0}, "shared"),
        ({"l1_bytes": 0.95 * 132 * 128 * 20_000}, "l1"),
        ({"formula_exp": 16 * 132 * 19_000}, "exp"),
        ({"cuda_core_flop": 256 * 132 * 19_000}, "fp32"),
    ],
)
def test_a_resource_near_its_roof_comes_first(counters: dict[str, float], kind: str) -> None:
    result = kinds(**COUNTED, **counters, stall_share_long_scoreboard=70.0, sm_clock=1.98e9)
    assert result == [kind, "stall_long_scoreboard"]
    half = {name: value / 2 for name, value in counters.items()}
    assert kinds(**COUNTED, **half, stall_share_long_scoreboard=70.0, sm_clock=1.98e9) == ["stall_long_scoreboard"]


def test_a_planted_bank_conflict_is_named() -> None:
    passes = 0.97 * 132 * 20_000
    result = limiters(
        Readings(
            record(**COUNTED, shared_wavefronts=passes, bank_conflicts=0.875 * passes, stall_share_mio_throttle=60)
        ),
        "fast",
        "mission",
    ).limiters[0]
    assert result.kind == "bank_conflicts" and result.brief.startswith("bank conflicts, 88 % of the passes")
    assert "shared memory 97 % busy" in result.evidence and result.facts[0] == "bank_conflicts"


@pytest.mark.parametrize(("lost", "kind"), [(0.5, "bank_conflicts"), (0.49, "shared")])
def test_shared_memory_is_held_by_conflicts_that_are_half_of_its_passes(lost: float, kind: str) -> None:
    passes = 0.97 * 132 * 20_000
    assert kinds(**COUNTED, shared_wavefronts=passes, bank_conflicts=lost * passes)[0] == kind


@pytest.mark.parametrize("share", [NEAR, NEAR - 0.1])
def test_a_resource_counts_from_a_share_on(share: float) -> None:
    assert ("dram" in kinds(**COUNTED, dram_throughput=share)) is (share == NEAR)


def test_conflicts_short_of_the_roof_are_evidence_of_the_wait_for_shared_memory() -> None:
    recorded = Readings(record(**COUNTED, shared_wavefronts=1e5, bank_conflicts=3e4, stall_share_short_scoreboard=50))
    (result,) = limiters(recorded, "fast", "mission").limiters
    assert "bank conflicts are 30 % of the passes" in result.evidence


def test_a_grid_that_leaves_sms_idle() -> None:
    blocks = factory.fact("blocks", 64, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    result = text(blocks, **COUNTED, stall_share_wait=30.0)
    assert result == "64 blocks on 132 SMs; wait stalls 30 %"
    recorded = record(blocks, **COUNTED)
    for recorded_sms, sms in ((100, 100), (None, 132)):  # the machine's own count, else the device table's
        on = replace(recorded, environment=replace(recorded.environment, gpu_sms=recorded_sms))
        assert limiter(Readings(on), "fast", "mission").startswith(f"64 blocks on {sms} SMs")
    many = factory.fact("blocks", 2 * 132 + 10, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    assert text(many, **COUNTED, stall_share_wait=30.0).startswith("1.04 waves of blocks")
    idle = limiters(Readings(record(many, **COUNTED, stall_share_wait=30.0)), "fast", "mission").limiters[0]
    assert idle.share == pytest.approx(100 * (1 - 274 / 264 / 2)) and "the last wave fills 4 %" in idle.evidence


def test_the_longest_phase_is_told_with_its_error() -> None:
    share = factory.fact("phase_share_load", 39.2, "fast", shape="mission", detail=Sampled(900, 1.6))
    assert text(share, **COUNTED, stall_share_wait=24.0) == "wait stalls 24 %; load phase 39 ± 2 %"
    assert list(phase_shares(record(share), MISSION)) == ["load"]


def test_what_was_not_measured_names_nothing() -> None:
    full = record()
    bare = replace(full, facts=Facts([f for f in full.facts if f.source != "events"]))
    assert limiter(Readings(bare), "fast", "mission") == ""
    assert text(**COUNTED, stall_share_barrier=None) == ""


def test_without_a_variant_there_is_no_limiter() -> None:
    assert limiter(Readings(factory.record()), None, "mission") == ""


def test_without_counters_the_formulas_and_the_time_say_how_near_each_roof_is() -> None:
    ranked = limiters(Readings(record(formula_flop=536870912.0, formula_bytes=2097152.0)), "fast", "mission")
    assert ranked.text == "nothing near its roof; nearest fp16 tensor cores at 1 % of its roof"
    assert [x.kind for x in ranked.limiters] == ["fp16_tensor"]


def test_what_lies_in_l2_has_a_dram_roof_with_cold_caches_alone() -> None:
    warm = record(formula_flop=536870912.0, formula_bytes=5e7)
    shape = replace(warm.suite.shapes["mission"], rank_by="cold")
    cold = replace(warm, suite=replace(warm.suite, shapes={**warm.suite.shapes, "mission": shape}))
    kinds = [{x.kind for x in limiters(Readings(r), "fast", "mission").limiters} for r in (warm, cold)]
    assert "dram" not in kinds[0] and "dram" in kinds[1]
