"""Points, roofs and bounds: the arithmetic by hand, the timing modes, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.roofline import Point, bounds, case_bounds, floor, missing, pick, points, roofs
from flashcore.model.case import Case
from flashcore.model.cause import Detail
from flashcore.model.causes import Caches, CodeChanged
from flashcore.model.record import Fact, Facts, Origin, Record, Roof, Subject, Value
from tests import factory

MISSION = {"flop": 4 * 8 * 512**2 * 64.0, "bytes": 4 * 8 * 512 * 64 * 2.0, "exp": 8 * 512**2 * 1.0}


def case(name: str, value: Value | None, variant: str = "fast", detail: Detail | str = "") -> Fact:
    return factory.fact(name, value, variant, shape="mission", detail=detail)


def point(record: Record, level: str = "dram", counted: str = "hardware", measured: tuple[Roof, ...] = ()) -> Point:
    (result,) = [
        p
        for p in points(replace(record, roofs=measured))
        if str(p.subject) == "fast/mission" and (p.level, p.counted) == (level, counted)
    ]
    return result


# --- roofs --------------------------------------------------------------------------------------


def test_roofs_scale_with_the_clock_and_dram_does_not() -> None:
    result = roofs(devices.find("H200"), 1970)
    sheet, seen = pick(result, "fp16_tensor", ("datasheet",)), pick(result, "fp16_tensor", ("at clock seen",))
    assert sheet is not None
    assert seen is not None
    assert sheet.value == 989.4
    assert seen.value == pytest.approx(132 * 4096 * 1.97e9 / 1e12)
    assert seen.name == "fp16_tensor, at clock seen (1,970 MHz)"
    assert pick(result, "dram", ("at clock seen",)) is None
    shared = pick(result, "shared", ("at clock seen",))
    assert shared is not None
    assert shared.value == pytest.approx(132 * 128 * 1.97)  # GB/s


def test_an_unknown_gpu_has_the_measured_roofs_alone() -> None:
    measured = Roof("dram", 700.0, "GB/s", "measured", "some GPU")
    assert roofs(None, 1500, [measured]) == (measured,)
    assert roofs(devices.find("Matrox G200")) == ()


@pytest.mark.parametrize(
    ("unit", "value", "amount", "us"),
    [("TFLOP/s", 1.0, 1e6, 1.0), ("GB/s", 1.0, 1e3, 1.0), ("Gop/s", 2.0, 1e3, 0.5), ("us", 0.6, 3, 1.8)],
)
def test_the_least_time_of_each_unit(unit: str, value: float, amount: float, us: float) -> None:
    assert Roof("x", value, unit, "measured", "d").us(amount) == pytest.approx(us)


# --- points -------------------------------------------------------------------------------------


def test_a_point_by_hand() -> None:
    facts = [
        case("ncu_duration", 8000.0),
        case("tensor_flop", 5e8),
        case("cuda_core_flop", 1e8),
        case("dram_bytes", 2e6),
        case("l2_bytes", 8e6),
        case("sm_clock", 1.83e9),
    ]
    record = factory.record(facts=facts)
    result = point(record)
    assert result.intensity == pytest.approx(300)
    assert result.tflops == pytest.approx(75)
    assert result.gbps == pytest.approx(250)
    # 300 FLOP/byte × 4,800 GB/s is 1,440 TFLOP/s, above the tensor roof: that one holds.
    assert result.theory.tflops == pytest.approx(132 * 4096 * 1.83e9 / 1e12)
    assert result.share == pytest.approx(75 / 989.45, rel=1e-3)
    assert result.faults == ()
    assert point(record, "l2").intensity == pytest.approx(75)
    assert point(record, "dram", "formula").flop == MISSION["flop"]


def test_below_the_ridge_the_bandwidth_is_the_ceiling() -> None:
    result = point(factory.record(facts=[case("dram_bytes", 2e7), case("cuda_core_flop", 0)]))
    assert result.theory.tflops == pytest.approx(4.8 * result.intensity)
    assert result.theory.bandwidth is not None
    assert result.theory.bandwidth.resource == "dram"


def test_time_and_bytes_are_of_one_mode_and_the_point_says_which() -> None:
    record = factory.record()
    duration = record.facts.number("ncu_duration", case("ncu_duration", 0).subject)
    assert duration is not None
    for result in points(record):
        counted = result.counted == "hardware"
        assert result.mode == ("cold, ncu (caches flushed)" if counted else "isolated p50")
    assert point(record).time_us == duration / 1e3  # not the warm time of bench
    useful = point(record, "l2", "formula")
    assert useful.time_us == record.facts.number("isolated_p50", useful.subject), "the time that ranks"
    kept = factory.record(facts=[case("ncu_duration", 5000.0, detail=Caches(kept=True))])
    assert point(kept).mode == "warm, ncu (caches kept)"


def test_the_dtype_is_the_variants_own() -> None:
    ours = {p.subject.variant: p.roof for p in points(factory.record())}
    assert (ours["slow"], ours["fast"]) == ("fp32", "fp16_tensor")


def test_each_kernel_of_a_case_has_points() -> None:
    ours = [p for p in points(factory.record()) if p.subject.variant == "split" and p.subject.shape == "mission"]
    assert {p.subject.kernel for p in ours} == {None, "split_kernel", "split_combine"}
    assert {p.counted for p in ours if p.subject.kernel} == {"hardware"}


@pytest.mark.parametrize("name", ["tensor_flop", "cuda_core_flop", "dram_bytes", "ncu_duration"])
@pytest.mark.parametrize("value", [None, 0])
def test_what_is_missing_is_no_point_and_never_zero(name: str, value: int | None) -> None:
    record = factory.record(facts=[case(name, value, detail="dropped by ncu")])
    ours = [p for p in points(record) if str(p.subject) == "fast/mission"]
    gaps = [why for subject, why in missing(record) if str(subject) == "fast/mission"]
    if name.endswith("flop") and value == 0:
        assert {p.counted for p in ours} == {"hardware", "formula"}  # no FLOPs of one kind is a count
        return
    assert not [p for p in ours if p.counted == "hardware" and p.level == "dram"]
    assert any(name in why for why in gaps)
    if value is None:
        assert any("dropped by ncu" in why for why in gaps)
    if name == "dram_bytes":
        assert {p.level for p in ours} == {"l2", "l1"}


def test_stale_cases_have_no_points() -> None:
    record = replace(factory.record(), stale={Case("fast", "mission"): CodeChanged("device")})
    assert not [p for p in points(record) if p.subject.case == Case("fast", "mission")]
    assert "stale: the device code, the plan or the problem changed" in [why for _, why in missing(record)]
    assert points(record) == [p for p in points(factory.record()) if p.subject.case != Case("fast", "mission")]


def test_an_unknown_gpu_still_has_points_without_a_ceiling() -> None:
    record = factory.record(environment=factory.environment(gpu="Some GPU"))
    result = point(record)
    assert result.tflops > 0
    assert (result.share, result.theory.tflops) == (None, None)


def test_joined_facts_are_drawn_under_the_roofs_of_their_own_gpu() -> None:
    origin = Origin("r", "NVIDIA H200", "sm_90a", "all")
    record = factory.record(environment=factory.environment(gpu=None), joined=(origin,))
    compute = point(record).theory.compute
    assert compute is not None
    assert compute.device == "H200"


def test_measured_roofs_slot_in_beside_the_datasheet() -> None:
    measured = (
        Roof("fp16_tensor", 650.0, "TFLOP/s", "measured", "H200", 1750, "wgmma"),
        Roof("dram", 4300.0, "GB/s", "measured", "H200", 1500),
    )
    result = point(factory.record(), measured=measured)
    assert result.clock_mhz == 1970
    assert result.measured.tflops == pytest.approx(650 * 1970 / 1750), "at the clock that the kernel had"
    assert result.measured.bandwidth and result.measured.bandwidth.value == 4300, "DRAM has a clock of its own"
    assert result.theory.tflops is not None
    assert result.theory.tflops > 989
    assert result.share_of_measured == pytest.approx(result.tflops / (650 * 1970 / 1750))


def test_a_measured_roof_stands_where_the_datasheet_states_none() -> None:
    """No datasheet states a bandwidth of L2: without the measured one a share would be of the compute roof alone."""
    measured = (Roof("l2", 1000.0, "GB/s", "measured", "H200"), Roof("dram", 1.0, "GB/s", "measured", "H200"))
    low, high = (point(factory.record(), level="l2", measured=m) for m in (measured, ()))
    assert low.theory == high.theory and low.ceiling.bandwidth == measured[0]
    assert low.share == pytest.approx(low.tflops / min(low.theory.tflops or 0, 1000 * low.intensity / 1e3))
    assert high.share == pytest.approx(high.tflops / (high.theory.tflops or 0))
    dram = point(factory.record(), measured=measured)
    assert dram.ceiling == dram.theory  # what the datasheet states is not replaced


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([case("ncu_duration", 100.0)], ("% of the roof fp16_tensor", "from different launches")),
        ([case("ncu_duration", 100.0), case("sm_clock", None)], ("the clock is unknown",)),
        ([case("dram_bytes", 5e9), case("ncu_duration", 10000.0)], ("of the roof dram", "L2-resident", "L2")),
        (
            [case("ncu_duration", 100.0), case("tensor_flop_fp16", None), case("tensor_flop_fp8", MISSION["flop"])],
            ("wrong dtype: its tensor FLOPs are fp8",),
        ),
    ],
)
def test_above_a_roof_is_an_error_with_its_likely_cause(facts: list[Fact], words: tuple[str, ...]) -> None:
    message = " ".join(point(factory.record(facts=facts)).faults)
    for word in words:
        assert word.replace("L2-resident", "data that stays in L2") in message


def test_tensor_flops_above_an_fp32_roof_are_a_wrong_dtype() -> None:
    record = factory.record(facts=[case("ncu_duration", 2000.0, "slow")])
    faults = [p.faults for p in points(record) if str(p.subject) == "slow/mission" and p.counted == "hardware"]
    assert all("wrong dtype: tensor cores did 98 % of its FLOPs" in f[0] for f in faults)


def test_formula_flops_that_the_hardware_never_did() -> None:
    three_quarters = case("tensor_flop", 0.75 * MISSION["flop"])
    record = factory.record(facts=[case("isolated_p50", 0.5), three_quarters, case("cuda_core_flop", 0)])
    (fault,) = point(record, "dram", "formula").faults
    assert "the hardware did 75 % of the formula's FLOPs" in fault


@pytest.mark.parametrize(("tensor", "flagged"), [(0.0, True), (2e8, True), (3e8, False)])
def test_hardware_far_below_the_formula_flags_the_point(tensor: float, flagged: bool) -> None:
    """cuBLAS's TF32 product once stood at 0.18 TFLOP/s instead of 342: its tensor FLOPs read 0."""
    record = factory.record(facts=[case("tensor_flop", tensor), case("cuda_core_flop", 5e6)])
    assert bool(point(record).faults) is flagged
    assert point(record, "dram", "formula").faults == ()
    if flagged:
        assert "of the formula's FLOPs: uncounted FLOP types" in point(record).faults[0]


def test_above_a_measured_roof_blames_the_roof() -> None:
    low = (Roof("fp16_tensor", 5.0, "TFLOP/s", "measured", "H200"),)
    assert "the measured roof is too low" in point(factory.record(), measured=low).faults[0]


# --- bounds -------------------------------------------------------------------------------------


def test_the_l4_theory_of_the_mission_corrected() -> None:
    result = bounds(MISSION, "fp16_tensor", roofs(devices.find("L4")))
    us = {b.resource: b.us for b in result}
    assert us["fp16_tensor"] == pytest.approx(4.4, abs=0.05)  # dense: 121 TFLOP/s, not the sparse 242
    assert us["dram"] == pytest.approx(7.0, abs=0.05)
    assert us["exp"] == pytest.approx(8 * 512**2 / (58 * 16 * 2040), rel=1e-6)
    lowest = floor(result)
    assert lowest is not None
    assert lowest.resource == "dram"


@pytest.mark.parametrize("key", sorted(devices.load()))
def test_bounds_need_no_gpu(key: str) -> None:
    result = bounds(MISSION, "fp16_tensor", roofs(devices.load()[key]))
    assert all(b.us is not None and b.us > 0 for b in result if b.resource in ("fp16_tensor", "dram", "exp"))


def test_what_no_formula_or_roof_tells_is_unmeasured_not_free() -> None:
    results = {b.resource: b for b in bounds(MISSION, "fp16_tensor", roofs(devices.find("H200")))}
    assert (results["shared"].us, results["shared"].note) == (None, "not in the problem's formulas")
    assert (results["launch"].us, results["launch"].note) == (None, "no roof is known")
    assert results["launch"].amount == 1  # a call
    assert (results["l2"].us, results["l2"].amount) == (None, MISSION["bytes"])
    assert floor(bounds(MISSION, "fp16_tensor", ())) is None


def test_an_fp32_variant_does_all_its_flops_there() -> None:
    work = {**MISSION, "tensor_flop": 1e9, "fp32_flop": 5e8}
    sheet = roofs(devices.find("H200"))
    scalar = {b.resource: b for b in bounds(work, "fp32", sheet)}
    assert scalar["fp32"].amount == 1.5e9
    assert "fp16_tensor" not in scalar
    tensor = {b.resource: b for b in bounds(work, "fp16_tensor", sheet)}
    assert (tensor["fp16_tensor"].amount, tensor["fp32"].amount) == (1e9, 5e8)


SGEMM = {"flop": 2.0 * 4096**3, "fp32_flop": 2.0 * 4096**3, "bytes": 3 * 4.0 * 4096**2}


@pytest.mark.parametrize(
    ("work", "fp32", "tensor", "separate_flop"),
    [
        (SGEMM, 2.0 * 4096**3, 2.0 * 4096**3, None),  # once, and on the roof that the variant names
        ({"flop": 9e9, "fp32_flop": 1e9}, 9e9, 8e9, 1e9),
        ({"flop": 8e9, "tensor_flop": 8e9, "fp32_flop": 1e9}, 9e9, 8e9, 1e9),  # flop counts the useful ones
        ({"flop": 9e9, "tensor_flop": 8e9, "fp32_flop": 1e9}, 9e9, 8e9, 1e9),
        ({"flop": 9e9, "tensor_flop": 8e9}, 9e9, 8e9, None),
        ({"flop": 9e9}, 9e9, 9e9, None),
        ({"fp32_flop": 1e9}, 1e9, None, 1e9),
        ({"flop": 0.0}, 0.0, 0.0, None),
        ({}, None, None, None),
    ],
)
def test_parts_of_the_flops_are_never_added_to_the_whole(
    work: dict[str, float], fp32: float | None, tensor: float | None, separate_flop: float | None
) -> None:
    scalar = {b.resource: b.amount for b in bounds(work, "fp32", ())}
    assert scalar["fp32"] == fp32
    reference = {b.resource: b.amount for b in bounds(work, "tf32_tensor", ())}
    assert (reference["tf32_tensor"], reference["fp32"]) == (tensor, separate_flop)


def test_a_measured_roof_is_the_one_a_bound_uses() -> None:
    measured = (Roof("launch", 0.61, "us", "measured", "H200"), Roof("dram", 4300.0, "GB/s", "measured", "H200"))
    results = {
        b.resource: b
        for b in bounds(MISSION, "fp16_tensor", roofs(devices.find("H200"), measured=measured), launches=3)
    }
    assert results["launch"].us == pytest.approx(1.83)
    assert results["dram"].us == pytest.approx(MISSION["bytes"] / 4.3e6)


def test_gaps_of_a_record() -> None:
    record = factory.record(times={"fast": 10.0})
    (result,) = [c for c in case_bounds(record) if str(c.subject) == "fast/mission"]
    gaps = {g.time: g for g in result.gaps}
    # At 1,980 MHz: 0.5 µs on the tensor cores and as much for exp, 0.44 µs of DRAM.
    assert result.floor is not None
    assert gaps["cold_p50"].floor_us == pytest.approx(MISSION["flop"] / (132 * 4096 * 1980), rel=1e-6)
    assert gaps["isolated_p50"].ratio == pytest.approx(10.0 / 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("throttle", "of_floor", "impossible"),
    [("none", 0.92, True), ("none", 0.98, False), ("power_cap", 0.92, False), ("thermal, power_cap", 0.6, True)],
)
def test_at_the_power_limit_only_the_highest_clock_makes_a_time_impossible(
    throttle: str, of_floor: float, impossible: bool
) -> None:
    floor_us = MISSION["flop"] / (132 * 4096 * 1320)  # two thirds of the clock that the GPU may have had
    record = factory.record(
        times={"fast": of_floor * floor_us}, facts=[case("bench_sm_clock", 1320.0), case("throttle", throttle)]
    )
    (result,) = [c for c in case_bounds(record) if str(c.subject) == "fast/mission"]
    gap = result.gap("isolated_p50")
    assert gap and gap.largest.us == pytest.approx(floor_us, rel=0.01)
    assert gap.is_impossible is impossible


def test_at_the_power_limit_memory_is_no_faster() -> None:
    floor_us = MISSION["flop"] / (132 * 4096 * 1320)
    size = 0.9 * floor_us * 4.8e6  # of the H200's 4.8 TB/s
    record = factory.record(
        times={"fast": 9.0},
        facts=[case("bench_sm_clock", 1320.0), case("throttle", "power_cap"), case("formula_bytes", size)],
    )
    (result,) = [c for c in case_bounds(record) if str(c.subject) == "fast/mission"]
    cold, warm = result.gap("cold_p50"), result.gap("isolated_p50")
    assert cold and warm and cold.largest.us == warm.largest.us == pytest.approx(floor_us, rel=0.01)
    assert cold.least_us == pytest.approx(0.9 * floor_us)
    assert warm.least_us == pytest.approx(floor_us * 1320 / 1980, rel=0.01), "its data is in L2"


def test_warm_data_in_l2_has_no_dram_floor() -> None:
    formulas = [case("formula_flop", 1e6), case("formula_exp", 1), case("formula_bytes", 4.8e7)]
    (result,) = [c for c in case_bounds(factory.record(facts=formulas)) if str(c.subject) == "fast/mission"]
    gaps = {g.time: g for g in result.gaps}
    assert gaps["cold_p50"].largest.resource == "dram"
    assert gaps["cold_p50"].largest.us == pytest.approx(10.0)
    assert gaps["isolated_p50"].largest.resource == "fp16_tensor"
    assert "L2" in gaps["isolated_p50"].note
    large = [*formulas[:2], case("formula_bytes", 4.8e8)]
    (result,) = [c for c in case_bounds(factory.record(facts=large)) if str(c.subject) == "fast/mission"]
    assert {g.largest.resource for g in result.gaps} == {"dram"}


def test_a_problem_has_one_floor_whatever_the_variant() -> None:
    """By the fastest compute roof of its variants, with one launch; at least the shortest empty launch of the mode."""
    suite = factory.suite([factory.variant("scalar", roof="fp32"), factory.variant("tensor", roof="fp16_tensor")])
    record = factory.record(suite, times={"scalar": 90.0, "tensor": 9.0})

    def floors(record: Record) -> dict[str, set[float]]:
        gaps = [gap for case in case_bounds(record) if case.subject.shape == "mission" for gap in case.gaps]
        return {time: {gap.floor_us for gap in gaps if gap.time == time} for time in {gap.time for gap in gaps}}

    of_tensor = {b.subject.case: b.bounds for b in case_bounds(record)}[Case("tensor", "mission")]
    lowest = floor(of_tensor)
    assert lowest and floors(record)["cold_p50"] == {lowest.us}
    empties = [
        factory.fact("isolated_launch_floor", us, v, shape="mission") for v, us in (("scalar", 3.0), ("tensor", 2.0))
    ]
    changed = floors(replace(record, facts=Facts([*record.facts, *empties])))
    assert changed["isolated_p50"] == {2.0} and changed["cold_p50"] == {lowest.us}


def test_identical_shapes_have_one_floor_whatever_their_problems_are_called() -> None:
    twin = replace(factory.shape("twin"), problem="general", params={**factory.MISSION, "CAUSAL": 0}, same_as="mission")
    suite = factory.suite([factory.variant("a"), factory.variant("b", problem="general")], [factory.shape(), twin])
    empties = [
        factory.fact("isolated_launch_floor", us, variant, shape=shape)
        for variant, shape, us in (("a", "mission", 2.0), ("b", "twin", 3.0))
    ]
    cases = case_bounds(factory.record(suite, times={"a": 9.0, "b": 8.0}, facts=empties))
    gaps = {str(case.subject): case.gap("isolated_p50") for case in cases}
    assert {name: gap and gap.floor_us for name, gap in gaps.items()} == {"a/mission": 2.0, "b/twin": 2.0}


def test_a_record_without_a_gpu_has_bounds_without_gaps() -> None:
    record = factory.bare_record(facts=factory.formula_facts("fast", factory.shape()))
    (result,) = case_bounds(record)
    assert result.floor is not None
    assert result.gaps == ()


def test_a_fact_recorded_twice_is_one_point() -> None:
    again = [case("formula_flop", 1e9), case("ncu_duration", 9000.0)]
    kernel = factory.fact("ncu_duration", 9000.0, "fast", shape="mission", kernel="fast_kernel")
    assert len(points(factory.record(facts=[*again, kernel]))) == len(points(factory.record()))


def test_the_same_record_gives_the_same_points() -> None:
    assert points(factory.record()) == points(factory.record())
    assert roofline.case_bounds(factory.record()) == roofline.case_bounds(factory.record())


def test_what_fits_the_l2_is_known_of_the_machine_or_of_its_device() -> None:
    machine = factory.record()
    assert roofline.fits_l2(machine, 60 << 20) and not roofline.fits_l2(machine, (60 << 20) + 1)
    assert not roofline.fits_l2(machine, None)
    named = replace(machine, environment=factory.environment(gpu_l2_bytes=None))
    device = devices.find(factory.GPU)
    assert device is not None and roofline.fits_l2(named, device.l2_mib * 2**20)
    assert not roofline.fits_l2(named, device.l2_mib * 2**20 + 1)
    unknown = replace(machine, environment=factory.environment(gpu="NVIDIA Nothing", gpu_l2_bytes=None))
    assert not roofline.fits_l2(unknown, 1)


def test_what_is_no_case_of_the_suite_hides_none_behind_it() -> None:
    whole = factory.record()
    strays = [
        factory.fact("formula_flop", 1e9, "gone", shape="mission"),
        factory.fact("formula_flop", 1e9, "fast"),
        factory.fact("ncu_duration", 9000.0, "fast", shape="mission", kernel="fast_kernel", launch=0),
    ]
    for stray in strays:
        record = replace(whole, facts=Facts([stray, *whole.facts]))
        assert points(record) == points(whole) and missing(record) == missing(whole)
        assert case_bounds(record) == case_bounds(whole)


def test_each_case_has_its_own_roofs_however_long_they_live(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [factory.shape(f"s{i}") for i in range(50)]
    record = factory.record(factory.suite(shapes=shapes))

    def made(_: Record, stage: str) -> Callable[[Subject], tuple[Roof, ...]]:
        return lambda s: (Roof("l2", float((s.shape or "").removeprefix("s") + "1"), "GB/s", "measured", "GPU"),)

    monkeypatch.setattr(Record, "roofs_by", made)
    results = {(c.subject.shape, b.roof.value) for c in case_bounds(record) for b in c.bounds
             if b.resource == "l2" and b.roof}  # fmt: skip
    assert results == {(s.name, float(s.name.removeprefix("s") + "1")) for s in shapes}
