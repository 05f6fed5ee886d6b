"""The parts of a case's time: they add up, and the largest is the known limiter; without measurements there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from flashcore.explain.limiter import NEAR, TimeParts, phase_shares, remedies, time_parts
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.causes import Sampled
from flashcore.model.record import CaseSubject, Fact, Facts, Record, Roof
from tests import conftest, factory
from tests.conftest import ROOT, latest
from tests.recorded import RECORDED
from tests.support import advised

FAST = Case("fast", "mission")
MISSION = CaseSubject(FAST)


def record(*facts: Fact, **counters: float | None) -> Record:
    """The usual run whose case fast/mission has these counters and no others."""
    full = factory.record()
    kept = [f for f in full.facts if f.subject != MISSION or f.source not in ("ncu", "formula")]
    kept = [f for f in kept if f.name != "blocks" or f.subject.variant != "fast"]
    case_facts = factory.facts_of(counters, "fast", shape="mission")
    return replace(full, facts=Facts([*kept, *case_facts, *facts]))


def text(*facts: Fact, **counters: float | None) -> str:
    return time_parts(Readings(record(*facts, **counters)), FAST).text


def kinds(**counters: float | None) -> list[str]:
    return [x.kind for x in time_parts(Readings(record(**counters)), FAST).limiters]


COUNTED: Mapping[str, float | None] = {"ncu_duration": 10_000, "elapsed_cycles": 20_000, "issue_active": 20.0}


def test_a_case_is_worked_out_once_for_the_same_readings() -> None:
    recorded = Readings(record(**COUNTED))
    assert time_parts(recorded, FAST) is time_parts(recorded, FAST)
    assert time_parts(recorded, FAST) != time_parts(recorded, Case("fast", "long"))
    assert time_parts(Readings(record(**{**COUNTED, "issue_active": 90.0})), FAST) != time_parts(recorded, FAST)


# --- kernels whose limiter is known -----------------------------------------------------------------


def published(suite: str) -> Readings:
    found = latest(ROOT / "profiles", suite)
    assert found is not None
    return Readings(found)


@pytest.fixture(scope="module")
def roofs() -> Readings:
    return published("roofs")


@pytest.fixture(scope="module")
def uncounted(roofs: Readings) -> Readings:
    return Readings(replace(roofs.record, facts=Facts([f for f in roofs.record.facts if f.source != "ncu"])))


ROOFS = pytest.mark.parametrize(
    ("variant", "shape", "kind", "words"),
    [
        ("dram_read_u4", "dram_read_h200", "dram", "DRAM busy 9. %"),
        ("dram_copy_bulk_t16r3", "dram_copy_h200", "dram", "DRAM busy [89]. %"),
        ("exp2", "exp2_h200", "exp", "special functions busy 9. %"),
        ("shared_read", "shared_read_h200", "shared", "shared memory busy 9. %"),
        ("shared_ldmatrix", "shared_read_h200", "shared", "shared memory busy 9. %"),
        ("l1_read", "l1_read_h200", "l1", "L1 busy 9. %"),
        ("fp32_fma", "fp32_fma_h200", "fp32", "fp32 pipes busy 9. %"),
        ("wgmma_fp8", "wgmma_fp8_h200", "fp8_tensor", "fp8 tensor cores busy [89]. %"),
        ("integer_add", "integer_add_h200", "issue", "issue slots busy"),
        ("launch", "launch_h200", "launch", "launches 9. %"),
    ],
)


@ROOFS
def test_the_published_roofs_are_held_by_what_they_are_made_of(
    uncounted: Readings, variant: str, shape: str, kind: str, words: str
) -> None:
    parts = time_parts(uncounted, Case(variant, shape))
    assert parts.limiter and parts.limiter.kind == kind and re.match(words, parts.text)
    assert "no counters" in parts.note


@ROOFS
def test_counters_name_the_same_limiter(roofs: Readings, variant: str, shape: str, kind: str, words: str) -> None:
    limiter = time_parts(roofs, Case(variant, shape)).limiter
    assert limiter and limiter.kind == ("issue" if kind == "fp32" else kind)  # FMAs alone fill the issue slots


def test_what_has_no_known_roof_is_unattributed_without_counters(roofs: Readings, uncounted: Readings) -> None:
    parts = time_parts(uncounted, Case("l2_read_u4", "l2_read_h200"))
    assert parts.limiter is None and parts.text == "" and parts.parts[-1].share > 95
    counted = time_parts(roofs, Case("l2_read_u4", "l2_read_h200")).limiter
    assert counted and counted.kind == "l2"


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "cases"), [("attention", 90), ("attention_general", 70)])
def test_every_case_of_a_published_run_with_counters_has_limiters_with_evidence(suite: str, cases: int) -> None:
    recorded = published(suite)
    counted = [f.subject for f in recorded.record.facts.named("ncu_duration") if f.value and f.subject.kernel is None]
    assert len(counted) >= cases
    for subject in counted:
        parts = time_parts(recorded, Case(subject.variant, subject.shape or ""))
        assert parts.limiters, subject
        for overlaps in (False, True):
            shares = [x.share for x in parts.limiters if x.overlaps is overlaps]
            assert shares == sorted(shares, reverse=True)
        assert all(x.evidence and x.facts for x in parts.limiters)


@pytest.mark.slow
def test_the_ladders_cases_have_the_limiters_that_were_seen() -> None:
    recorded = published("attention")
    text = time_parts(recorded, Case("tma_split_keys", "mission")).text
    phase = r"load phase \d+ ± \d % of warp time"
    assert re.match(rf"SMs without warps \d+ %; {phase}; launches \d+ %; waiting for the fixed latency", text)
    idle = time_parts(recorded, Case("register_o", "mission")).limiter
    assert idle and idle.text == "idle SMs" and idle.evidence == "blocks 64, 132 SMs: 68 have no block"
    best = remedies(recorded, "mission")["idle_sms"][0]
    assert (best.variant, best.parent) == ("split_keys", "register_o") and best.faster > 1.3
    assert best.after < 5 < 45 < best.before


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
    parts = time_parts(Readings(factory.bare_record(suite, facts)), Case(name, shape))
    found = [x.kind for x in parts.limiters]
    assert found[0] == kinds[0] and kinds[1] in found and parts.note == ""


# --- counters ---------------------------------------------------------------------------------------


def test_the_largest_share_of_stalls_is_named() -> None:
    words = text(**COUNTED, stall_share_barrier=41.0, stall_share_wait=12.0)
    barrier, wait = "the block's other warps at a barrier", "the fixed latency of the previous instruction"
    assert words == f"waiting for {barrier} 33 %; waiting for {wait} 10 %; unattributed 38 %"


def test_warps_that_could_issue_are_held_by_nothing() -> None:
    assert kinds(**COUNTED, stall_share_not_selected=30.0, stall_share_wait=10.0) == ["stall_wait"]


def test_stalls_count_as_far_as_nothing_is_issued_meanwhile() -> None:
    busy = {**COUNTED, "issue_active": 90.0, "stall_share_wait": 50.0}
    assert kinds(**busy) == ["issue", "stall_wait"]
    assert time_parts(Readings(record(**busy)), FAST).limiters[1].share == pytest.approx(5.0)


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
    result = time_parts(
        Readings(
            record(**COUNTED, shared_wavefronts=passes, bank_conflicts=0.875 * passes, stall_share_mio_throttle=60)
        ),
        FAST,
    ).limiters[0]
    assert result.kind == "bank_conflicts" and result.brief == "bank conflicts 97 %"
    assert "88 % of the passes through shared memory" in result.evidence and result.facts[0] == "bank_conflicts"


@pytest.mark.parametrize(("lost", "kind"), [(0.5, "bank_conflicts"), (0.49, "shared")])
def test_shared_memory_is_held_by_conflicts_that_are_half_of_its_passes(lost: float, kind: str) -> None:
    passes = 0.97 * 132 * 20_000
    assert kinds(**COUNTED, shared_wavefronts=passes, bank_conflicts=lost * passes)[0] == kind


@pytest.mark.parametrize("share", [NEAR, NEAR - 0.1])
def test_a_resource_counts_from_a_share_on(share: float) -> None:
    assert ("dram" in kinds(**COUNTED, dram_throughput=share)) is (share == NEAR)


def test_conflicts_short_of_the_roof_are_evidence_of_the_wait_for_shared_memory() -> None:
    recorded = Readings(record(**COUNTED, shared_wavefronts=1e5, bank_conflicts=3e4, stall_share_short_scoreboard=50))
    (result,) = time_parts(recorded, FAST).limiters
    assert "bank conflicts are 30 % of the passes" in result.evidence


def test_a_grid_that_leaves_sms_idle() -> None:
    blocks = factory.fact("blocks", 64, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    recorded = record(blocks, **COUNTED)
    for recorded_sms, sms in ((100, 100), (None, 132)):  # the machine's own count, else the device table's
        on = replace(recorded, environment=replace(recorded.environment, gpu_sms=recorded_sms))
        idle = time_parts(Readings(on), FAST).limiter
        assert idle and idle.kind == "idle_sms" and idle.share == pytest.approx(100 * (1 - 64 / sms))
        assert idle.evidence == f"blocks 64, {sms} SMs: {sms - 64} have no block"
    many = factory.fact("blocks", 2 * 132 + 10, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    idle = time_parts(Readings(record(many, **COUNTED, stall_share_wait=30.0)), FAST).limiter
    assert idle and idle.share == pytest.approx(100 * (1 - 274 / 264 / 2))
    assert "the last of 1.04 waves fills 4 %" in idle.evidence


def test_the_longest_phase_is_told_with_its_error() -> None:
    share = factory.fact("phase_share_load", 39.2, "fast", shape="mission", detail=Sampled(900, 1.6))
    assert text(share, **COUNTED, stall_share_wait=24.0) == (
        "waiting for the fixed latency of the previous instruction 19 %; load phase 39 ± 2 % of warp time; "
        "unattributed 61 %"
    )
    assert list(phase_shares(record(share), MISSION)) == ["load"]


def test_what_was_not_measured_names_nothing() -> None:
    full = record()
    bare = replace(full, facts=Facts([f for f in full.facts if f.source != "events"]))
    assert time_parts(Readings(bare), FAST).text == ""
    assert text(**COUNTED, stall_share_barrier=None) == ""


def test_without_a_variant_there_is_no_limiter() -> None:
    assert time_parts(Readings(factory.record()), Case("", "mission")).text == ""


def test_without_counters_a_case_far_below_its_roofs_is_unattributed() -> None:
    parts = time_parts(Readings(record(formula_flop=2e10, formula_bytes=2097152.0)), FAST)
    assert [x.kind for x in parts.limiters] == ["fp16_tensor"] and "no counters" in parts.note
    assert re.fullmatch(r"fp16 tensor cores busy \d+ %; unattributed \d\d %", parts.text)


def test_what_lies_in_l2_has_a_dram_roof_with_cold_caches_alone() -> None:
    warm = record(formula_flop=536870912.0, formula_bytes=5e7)
    shape = replace(warm.suite.shapes["mission"], rank_by="cold")
    cold = replace(warm, suite=replace(warm.suite, shapes={**warm.suite.shapes, "mission": shape}))
    kinds = [{x.kind for x in time_parts(Readings(r), FAST).limiters} for r in (warm, cold)]
    assert "dram" not in kinds[0] and "dram" in kinds[1]


# --- the whole time -----------------------------------------------------------------------------------


def divided(values: advised.Values, *, gpu: bool = True) -> tuple[dict[str, float], TimeParts]:
    time = time_parts(Readings(advised.record(values, gpu=gpu)), FAST)
    return {p.kind: p.share for p in time.parts}, time


def test_waits_are_shares_of_the_time_in_which_sms_have_warps() -> None:
    shares, _ = divided(advised.stall("barrier", 50.0))
    assert shares == pytest.approx(
        {"issue": 18.0, "stall_barrier": 36.0, "empty_sms": 10.0, "unattributed": 36.0}, rel=0.01
    )


def test_sms_without_warps_are_left_out_where_the_busy_resource_takes_that_time_too() -> None:
    shares, time = divided({**advised.COUNTED, "dram_throughput": 95.0})
    assert shares == pytest.approx({"dram": 95.0, "unattributed": 5.0})
    assert time.most["empty_sms"] == pytest.approx(5.0)


def test_without_the_count_of_issued_instructions_waits_are_upper_bounds() -> None:
    _, time = divided({**advised.stall("barrier", 50.0), "instructions_issued": None})
    bound = next(p for p in time.parts if p.kind == "stall_barrier")
    assert bound.share == pytest.approx(40.0) and "at most" in bound.evidence


def test_waits_that_overlap_a_busy_resource_are_left_out_but_bound_by_the_rest() -> None:
    shares, time = divided({**advised.stall("long_scoreboard", 50.0), "dram_throughput": 80.0})
    assert shares == pytest.approx({"dram": 80.0, "empty_sms": 10.0, "unattributed": 10.0}, rel=0.01)
    assert "overlap" in time.parts[-1].evidence and time.most["stall_long_scoreboard"] == pytest.approx(20.0)


def test_waits_that_fit_stand_beside_the_busy_resource() -> None:
    shares, _ = divided({**advised.stall("barrier", 10.0), "dram_throughput": 80.0})
    assert shares["stall_barrier"] == pytest.approx(7.2, rel=0.01) and "issue" not in shares


def test_idle_sms_are_known_without_a_gpu() -> None:
    shares, time = divided({"blocks": 33}, gpu=False)
    assert shares == pytest.approx({"idle_sms": 75.0, "unattributed": 25.0})
    assert time.parts[-1].evidence == "nothing was timed"


def test_sms_without_a_block_are_idle_in_the_time_beside_the_launch() -> None:
    roofs = (Roof("launch", 3.0, "us", "measured", factory.GPU),)
    case = replace(advised.record({"isolated_p50": 10.0, "kernel_launches": 1, "blocks": 66}), roofs=roofs)
    time = time_parts(Readings(case), FAST)
    assert {p.kind: p.share for p in time.parts} == pytest.approx(
        {"launch": 30.0, "idle_sms": 35.0, "unattributed": 35.0}
    )


def test_without_counters_the_formulas_resource_is_named() -> None:
    shares, time = divided({"isolated_p50": 10.0, "formula_flop": 6e9, "formula_bytes": 1e6})
    assert shares["fp16_tensor"] == pytest.approx(100 * 6e9 / 989.4e6 / 10, rel=0.01)
    assert time.timed and time.text == "fp16 tensor cores busy 61 %"


@pytest.mark.slow
def test_the_parts_of_every_published_case_add_up() -> None:
    readings = Readings(conftest.published())
    for shape in conftest.published().suite.shapes.values():
        for variant in conftest.published().suite.variants.values():
            if variant.runs_on(shape):
                time = time_parts(readings, Case(variant.name, shape.name))
                assert sum(p.share for p in time.parts) == pytest.approx(100)
                assert all(p.share >= 0 and p.evidence for p in time.parts)
