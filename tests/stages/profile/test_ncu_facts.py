"""Rows become facts: added up by kind, honest about what is missing."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import pytest

from flashcore.chips.occupancy import blocks_by_registers
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, GROUP_STAGE, STALL_REASONS, TENSOR_TYPES, Kind
from flashcore.model.causes import MANY_PASSES, MESSAGE, PlanRefused
from flashcore.model.record import CaseSubject, Fact, Facts, Launch, Plan, Subject
from flashcore.readers.ncu.raw_page import Cells, parse
from flashcore.readers.ncu.results import Result
from flashcore.stages.profile import ncu_facts
from flashcore.stages.profile.ncu_facts import INFERRED, MEASURED, CaseBuild, facts_of, metrics_to_request, unmeasured
from tests.recorded import RECORDED

CASE = CaseSubject(Case("v", "s"))
TORCH = "<default domain>"
OPCODES = "sass__inst_executed_per_opcode"


def stall(reason: str) -> str:
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


REGISTERS = "launch__registers_per_thread"
_FLOPS = ("FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2", "DADD", "DMUL", "DFMA", "LDL", "STL")
OPCODES_LISTED = f"21 (IMAD: 6; BAR: 4; {'; '.join(f'{o}: 1' for o in _FLOPS)})"
UNITS = {"pct": "%", "B": "byte", "ns": "ns", "Hz": "hz", "1": ""}


def row(changes: dict[str, str | None] | None = None, *, kernel: str = "k", **fields: object) -> Result:
    """A launch with every metric of a gh100: each reads 1 where that can be, but for the changes (``None``: not
    returned)."""
    given: dict[str, object] = {"grid": (4, 1, 1), "block": (64, 1, 1)} | fields
    blocks, threads = (math.prod(given[n]) for n in ("grid", "block"))  # type: ignore[call-overload]
    time, registers = ((changes or {}).get(n) or "1" for n in ("gpu__time_duration.sum", REGISTERS))
    fit = blocks_by_registers(-(-threads // 32), int(registers))
    cells = dict.fromkeys(metrics_to_request("gh100"), "1") | {
        OPCODES: OPCODES_LISTED, "smsp__inst_executed.sum": "21", "smsp__inst_issued.sum": "21",
        "launch__grid_size": str(blocks), "launch__block_size": str(threads),
        "launch__occupancy_limit_registers": str(fit),
        "sm__cycles_elapsed.max": time, "smsp__cycles_elapsed.avg.per_second": "1,000,000,000",
        **{f"{unit}__t_bytes.sum": _times((changes or {}).get(f"{unit}__t_sectors.sum")) for unit in ("l1tex", "lts")},
    }  # fmt: skip
    units = {spec.ncu: UNITS[spec.unit] for spec in FACTS.values() if spec.ncu}
    for name, text in (changes or {}).items():
        if text is None:
            del cells[name]
        else:
            cells[name] = text
    return Result(
        id=0, kernel=kernel, workload="kernel", cc=(9, 0), metrics=Cells(cells, {k: v for k, v in units.items() if k}),
        grid=given["grid"], block=given["block"],  # type: ignore[arg-type]
    )  # fmt: skip


def _times(sectors: str | None) -> str:
    return str(32 * int(sectors or "1"))


def case(*rows: Result, chip: str = "gh100", refused: dict[str, str] | None = None, plan: Plan | None = None) -> Facts:
    return Facts(facts_of(CASE, rows, chip=chip, refused=refused, built=CaseBuild(plan)))


def without(one: Result, metrics: Collection[str]) -> Result:
    assert isinstance(one.metrics, Cells)
    bases = {metric.partition(".")[0] for metric in metrics}
    cells = {name: text for name, text in one.metrics.cells.items() if name.partition(".")[0] not in bases}
    return replace(one, metrics=replace(one.metrics, cells=cells))


def values(facts: Facts) -> dict[tuple[Subject, str], object]:
    return {(f.subject, f.name): f.value for f in facts}


def fact(facts: Facts, name: str, subject: Subject = CASE) -> Fact:
    result = facts.get(name, subject)
    assert result is not None
    return result


# --- the catalogue -------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["gh100", "ga100", "ad104"])
def test_every_metric_asked_for_is_one_the_chip_has(chip: str) -> None:
    """Against ``ncu --query-metrics``; what comes with the launch or from SASS is not listed there."""
    listed = set((RECORDED / f"ncu_metric_names_{chip}.txt").read_text().split())
    requested = {m for m in metrics_to_request(chip) if not m.startswith(("launch__", "sass__", "sm__maximum_warps"))}
    assert {m for m in requested if m.partition(".")[0] not in listed} == set()
    assert len(requested) > 50


def test_metrics_that_come_with_the_launch_are_in_the_recording() -> None:
    recorded = parse((RECORDED / "ncu_raw_domain.csv").read_bytes().decode()).rows[0]
    requested = [m for m in metrics_to_request("gh100") if m.startswith(("launch__", "sass__", "sm__maximum_warps"))]
    assert requested and [m for m in requested if m not in recorded] == []


def test_every_counter_of_the_catalogue_is_stated_for_a_case_and_once() -> None:
    names = [f.name for f in facts_of(CASE, [row()], chip="gh100") if f.subject == CASE]
    counters = [n for n, s in FACTS.items() if s.tier == "counters" and s.group not in GROUP_STAGE]
    assert sorted(names) == sorted(counters) == sorted(MEASURED)
    assert sorted(f.name for f in unmeasured(CASE.case, MESSAGE("why"))) == sorted(counters)


def test_a_full_row_leaves_nothing_unmeasured() -> None:
    missing = {f.name for f in case(row()) if f.value is None and f.subject == CASE}
    assert missing - {n for n, s in FACTS.items() if s.ncu and s.ncu_name("gh100") is None} == {"plan_matches"}


def test_spilling_is_asked_together_with_opcodes() -> None:
    requested = metrics_to_request("gh100")
    assert OPCODES in requested and "sass__inst_executed_register_spilling" in requested
    assert len(requested) == len(set(requested))
    assert "dram__bytes_read.sum" not in metrics_to_request("gh100", ["dram__bytes_read.sum"])


# --- one launch ----------------------------------------------------------------------------------


def test_one_launch_gives_the_case_and_the_launch() -> None:
    facts = case(row({"gpu__time_duration.sum": "13,024"}, kernel="void ns::k<int, (Foo)1>(float*, int)"))
    assert fact(facts, "ncu_duration").value == 13024
    launch = CaseSubject(Case("v", "s"), kernel="ns::k")
    assert fact(facts, "ncu_duration", launch).value == 13024
    assert facts.get("kernel_launches", launch) is None


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"dram__bytes_read.sum": None}, "ncu did not return it"),
        ({"dram__bytes_read.sum": "n/a"}, "ncu gave 'n/a'"),
        ({"dram__bytes_read.sum": "nan"}, "ncu gave 'nan'"),
        ({"dram__bytes_read.sum": ""}, "an empty value"),
    ],
)
def test_a_missing_value_is_unmeasured_and_so_is_what_follows_from_it(
    changes: dict[str, str | None], note: str
) -> None:
    facts = case(row(changes))
    assert fact(facts, "dram_read_bytes").value is None and note in fact(facts, "dram_read_bytes").note
    assert fact(facts, "dram_bytes").value is None and "dram_read_bytes" in fact(facts, "dram_bytes").note
    assert fact(facts, "dram_write_bytes").value == 1


def test_a_value_in_a_unit_that_does_not_fit_is_unmeasured() -> None:
    odd = row()
    assert isinstance(odd.metrics, Cells)
    units = {**odd.metrics.units, "lts__t_bytes.sum": "sector"}
    odd = replace(odd, metrics=replace(odd.metrics, units=units))
    result = fact(case(odd), "l2_bytes")
    assert result.value is None and result.note == "ncu gave 32 sector, expected a value in B"


def test_what_the_chip_lacks_and_what_ncu_refused() -> None:
    facts = case(row(), chip="ad104")
    assert fact(facts, "stall_gmma").note == "ad104 has no such metric"
    assert fact(facts, "stall_share_gmma").value is None
    assert fact(facts, "memory_stalls").value is not None, "the shares are those of the reasons the chip has"
    words = {"lts__t_bytes.sum": "Failed to find metric lts__t_bytes.sum"}
    refused = case(row({"lts__t_bytes.sum": None}), refused=words)
    assert fact(refused, "l2_bytes").value is None
    assert "Failed to find metric" in fact(refused, "l2_bytes").note
    assert fact(case(row(), refused=words), "l2_bytes").value == 32, "it came along unasked"


def test_stall_shares_add_up_to_all() -> None:
    facts = case(row({stall("long_scoreboard"): "3", stall("mio_throttle"): "2", stall("selected"): "99"}))
    total = 3 + 2 + (len(STALL_REASONS) - 3) * 1
    assert fact(facts, "stall_share_long_scoreboard").value == pytest.approx(300 / total)
    assert fact(facts, "memory_stalls").value == pytest.approx(100 * (3 + 2 + 1) / total)
    shares = [facts.number(f"stall_share_{r}", CASE) for r in STALL_REASONS if r != "selected"]
    assert sum(s for s in shares if s is not None) == pytest.approx(100)
    lost = case(row({stall("drain"): None}))
    assert fact(lost, "memory_stalls").value is None and "stall_drain" in fact(lost, "memory_stalls").note
    still = case(row(dict.fromkeys(map(stall, STALL_REASONS), "0")))
    assert fact(still, "memory_stalls").value is None


def test_barriers() -> None:
    facts = case(row(grid=(3, 1, 1), block=(48, 1, 1)))  # 3 blocks of 2 warps
    assert fact(facts, "barrier_instructions").value == 4
    assert fact(facts, "barriers_per_block").value == pytest.approx(4 / 6)
    none = case(row({OPCODES: "6 (IMAD: 6)"}))
    assert fact(none, "barrier_instructions").value == 0, "the listed opcodes are all there were"
    assert fact(case(row({OPCODES: "0"})), "barrier_instructions").value == 0, "of none there is none to list"
    for text, note in (("10", "no counts per opcode"), ("10 (IMAD: 6)", "add up to 6"), ("10 (IMAD: 6; BAR…)", "no")):
        partial = case(row({OPCODES: text}))
        assert fact(partial, "barrier_instructions").value is None
        assert fact(partial, "barriers_per_block").value is None
        assert note in fact(partial, "barrier_instructions").note


def test_flops() -> None:
    facts = case(row())
    assert fact(facts, "cuda_core_flop").value == (1 + 1 + 2) + (2 + 2 + 4) + (1 + 1 + 2)
    assert fact(facts, "tensor_flop").value == len(TENSOR_TYPES) - 6, "six types are not this chip's"
    assert fact(case(row(), chip="ga100"), "tensor_flop").value is None, "its own fp16 metric is not in the row"


# Products of 1,024 x 1,024 matrices by torch, and three elementwise kernels, on an H200 (ncu 2025.3.1, torch 2.11).
PRODUCTS = parse((RECORDED / "ncu_raw_tensor_types.csv").read_bytes().decode(), domain=TORCH)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp64", "tf32", "int8", "fp8", "sparse_fp16"])
def test_recorded_products_of_every_type_are_counted(name: str) -> None:
    facts = case(*PRODUCTS.by_range()[name])
    assert fact(facts, "tensor_flop").value == 2 * 1024**3
    assert fact(facts, f"tensor_flop_{name.removeprefix('sparse_')}").value == 2 * 1024**3


def test_recorded_kernels_without_products_did_no_tensor_flop() -> None:
    """cuBLAS's fp32 product executes HFMA2.MMA on the tensor pipe: instructions, but of no matrices."""
    facts = case(*PRODUCTS.by_range()["fp32"])
    assert fact(facts, "tensor_instructions").value == fact(facts, "tensor_hfma2_instructions").value == 512
    assert fact(facts, "tensor_flop").value == 0
    assert fact(case(*PRODUCTS.by_range()["double"]), "cuda_core_flop").value == 2 * 1024**2


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp64", "tf32", "int8", "fp8"])
@pytest.mark.parametrize("missing", [True, False])
def test_products_of_a_type_that_is_not_told_are_unmeasured_never_zero(name: str, missing: bool) -> None:
    """ncu omits the type's counter, or reports 0 for it."""
    (one,) = PRODUCTS.by_range()[name]
    base = str(FACTS[f"tensor_flop_{name}"].ncu_name("gh100")).removesuffix("sum")
    zero = {} if missing else {base + rollup: "0" for rollup in ("sum", "avg", "min", "max")}
    assert isinstance(one.metrics, Cells)
    cells = {k: v for k, v in one.metrics.cells.items() if k != f"{base}sum"} | zero
    result = fact(case(replace(one, metrics=replace(one.metrics, cells=cells))), "tensor_flop")
    assert result.value is None
    assert ("did not return" if missing else "tensor-core instructions, but only 0 FLOPs") in result.note


#: Attention kernels on an H200: without products, and with wmma, mma, fp8 and wgmma.
ATTENTION = parse((RECORDED / "ncu_raw_attention.csv").read_text(encoding="utf-8")).by_range()


@pytest.mark.parametrize("name", ATTENTION)
def test_types_that_are_not_counted_follow_from_the_instructions_executed(name: str) -> None:
    """The counters of four types are left out of a launch, and the facts stay the same."""
    counters = {*metrics_to_request("gh100")} - {*metrics_to_request("gh100", without=INFERRED)}
    assert len(counters) == 4 and FACTS["tensor_flop_int8"].ncu in counters
    rows = ATTENTION[name]
    fewer = [without(one, counters) for one in rows]
    assert len(fewer[0].metrics) < len(rows[0].metrics)
    assert values(case(*fewer)) == values(case(*rows))


def test_the_instructions_executed_tell_nothing_that_they_do_not_list() -> None:
    counter = str(FACTS["tensor_flop_int8"].ncu_name("gh100"))
    forms = "sass__inst_executed_per_opcode_with_modifier_all"
    for listed, wanted in (
        ("12 (HMMA.16816.F32: 2; FADD: 10)", 0.0),
        ("12 (IMMA.16832.S8.S8: 2; FADD: 10)", 2 * 2 * 4096),
        ("12 (IMMA.8816.S8.S8: 2; FADD: 10)", 2 * 2 * 8 * 8 * 16),
        ("12 (IGMMA.64x8x32.S8.S8: 8; FADD: 4)", 2 * 2 * 64 * 8 * 32),
        ("12 (IMMA.16832.S4.S4: 2; FADD: 10)", None),  # which are int4
        ("12 (HMMA.NEW.F32: 2; FADD: 10)", None),
        ("12 (HMMA.16816.F32: 2)", None),  # not all
        ("", None),
    ):
        result = fact(case(row({counter: None, forms: listed})), "tensor_flop_int8")
        assert result.value == wanted and (wanted is not None or "did not return" in result.note)
    for listed in ("12 (HMMA.16816.F32: 2; FADD: 10)", "12 (FADD: 12)"):  # fp16 is summed up in fp32 or in fp16
        ampere = fact(case(row({forms: listed}), chip="ga100"), "tensor_flop_fp16_sum16")
        assert ampere.value == (None if "HMMA" in listed else 0.0)


def test_every_type_is_counted_where_instructions_do_not_tell() -> None:
    forms = "sass__inst_executed_per_opcode_with_modifier_all"
    assert forms in metrics_to_request("gh100", without=INFERRED)
    assert {*metrics_to_request("gh100", [forms], without=INFERRED)} == {*metrics_to_request("gh100")}
    assert metrics_to_request("gb100", without=INFERRED) == metrics_to_request("gb100")
    without = metrics_to_request("gb100", without={*INFERRED, "sm_throughput"})
    assert {*metrics_to_request("gb100")} - {*without} == {FACTS["sm_throughput"].ncu}


def test_a_type_that_is_not_told_beside_one_that_is() -> None:
    few: dict[str, str | None] = {
        "sm__ops_path_tensor_src_fp16.sum": "51,200",
        "sm__inst_executed_pipe_tensor.sum": "1,000",
    }
    result = fact(case(row(few)), "tensor_flop")
    assert result.value is None and result.note.startswith("999 tensor-core instructions, but only 51,206 FLOPs")


def test_a_ratio_of_nothing_is_unmeasured_not_zero() -> None:
    facts = case(row({"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "0",
                      "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct": "0"}))  # fmt: skip
    result = fact(facts, "shared_efficiency")
    assert result.value is None and "nothing to divide by" in result.note


def test_what_cannot_be_is_unmeasured_and_so_is_what_follows_from_it() -> None:
    facts = case(row({"lts__t_bytes.sum": "96"}))  # of one sector, which is 32 bytes
    result = fact(facts, "l2_bytes")
    assert result.value is None and result.note.startswith("impossible: ")
    assert fact(facts, "dram_bytes").value == 2, "what it says nothing of stays"


def test_addresses_are_decimal_or_hexadecimal_and_none_are_told_if_one_is_no_address() -> None:
    assert ncu_facts._addresses({"0x10": 1.0, "17": 2.0}) == {16: 1.0, 17: 2.0}
    assert ncu_facts._addresses({"0x10": 1.0, "BAR": 2.0}) == {}


def test_what_a_chip_has_none_of_is_no_sum() -> None:
    result = ncu_facts._sum({}, {"tensor_flop_fp16": 1, "tensor_flop_fp8": 1}, set())
    assert (result.value, result.note) == (None, "this chip has none of tensor_flop_fp16, tensor_flop_fp8")


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_weights_that_come_to_nothing_or_less_weigh_nothing(weight: float) -> None:
    result = ncu_facts._mean([10.0, 20.0], [weight, weight], "l2_sectors")
    assert (result.value, result.note) == (None, "cannot be combined over 2 launches: l2_sectors is 0")


# --- several launches ----------------------------------------------------------------------------


def launches() -> tuple[Result, Result]:
    first = row({"gpu__time_duration.sum": "3,000", "lts__t_sector_hit_rate.pct": "50", "lts__t_sectors.sum": "100",
                 "sm__throughput.avg.pct_of_peak_sustained_elapsed": "10", "launch__registers_per_thread": "40"},
                )  # fmt: skip
    second = row({"gpu__time_duration.sum": "1,000", "lts__t_sector_hit_rate.pct": "90", "lts__t_sectors.sum": "300",
                  "sm__throughput.avg.pct_of_peak_sustained_elapsed": "50", "launch__registers_per_thread": "32"},
                 kernel="combine")  # fmt: skip
    return first, second


def test_launches_add_up_by_kind() -> None:
    facts = case(*launches())
    assert fact(facts, "ncu_duration").value == 4000
    assert fact(facts, "sm_throughput").value == pytest.approx((10 * 3000 + 50 * 1000) / 4000)
    assert fact(facts, "l2_hit").value == pytest.approx((50 * 100 + 90 * 300) / 400)
    assert fact(facts, "ncu_registers").value == 40
    assert fact(facts, "dram_bytes").value == 4
    assert fact(facts, "kernel_launches").value == 2
    assert fact(facts, "l2_hit", CaseSubject(Case("v", "s"), kernel="combine")).value == 90


def test_registers_that_differ_from_the_cubins_say_so() -> None:
    first = launches()[0]
    same, more = (ncu_facts.launch_values(first, "gh100", registers=n)["ncu_registers"] for n in (40, 38))
    assert (same.value, same.detail, more.value) == (40, "", 40) and "the code needs 38" in str(more.detail)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_metric_that_one_launch_lacks_is_unmeasured_for_the_case(kind: Kind) -> None:
    first, second = launches()
    for name, spec in MEASURED.items():
        metric = spec.ncu_name("gh100")
        if spec.kind is kind and metric and not spec.opcodes:
            broken = row({metric: None}, kernel="combine")
            result = fact(case(first, broken), name)
            note = "launch 1: ncu did not return it"
            assert result.value is None and result.note == note + (f": {MANY_PASSES}" if spec.many_passes else ""), name
            both = fact(case(row({metric: None}), broken), name)
            assert both.value is None and both.note == result.note.removeprefix("launch 1: "), (
                "of all alike it is said once"
            )
            assert fact(case(first, second), name).value is not None


def test_a_launch_without_a_denominator_does_not_spoil_the_ratio() -> None:
    first, _ = launches()
    idle = row({"lts__t_sectors.sum": "0", "lts__t_sector_hit_rate.pct": "n/a"})
    assert fact(case(first, idle), "l2_hit").value == 50
    assert fact(case(idle, idle), "l2_hit").value is None
    blind = row({"lts__t_sectors.sum": None})
    result = fact(case(first, blind), "l2_hit")
    assert result.value is None and "lts__t_sectors.sum is unmeasured" in result.note
    assert fact(case(blind), "l2_hit").value == 1, "alone it needs no weight"


def test_recorded_flash_is_two_kernels() -> None:
    text = (RECORDED / "ncu_raw_multi_kernel.csv").read_bytes().decode()
    rows = parse(text, domain="<default domain>").by_range()["sdpa_FLASH_ATTENTION"]
    facts = case(*rows)
    assert fact(facts, "ncu_duration").value == 7648 + 5728
    assert fact(facts, "tensor_active").value == pytest.approx((14.93 * 7648 + 0.55 * 5728) / (7648 + 5728))
    assert {f.subject.kernel for f in facts} == {
        None, "pytorch_flash::flash_fwd_splitkv_kernel", "pytorch_flash::flash_fwd_splitkv_combine_kernel",
    }  # fmt: skip


# --- the plan ------------------------------------------------------------------------------------

LAUNCH = Launch("k", (4, 1, 1), (64, 1, 1), (1, 1, 1), 1)


def planned(*given: Launch) -> Plan:
    return Plan("v", "s", given, 0)


def test_plan_matches() -> None:
    result = fact(case(row(), plan=planned(LAUNCH)), "plan_matches")
    assert (result.value, result.note) == (1, "")


@pytest.mark.parametrize(
    ("plan", "note"),
    [
        (planned(), "launches in the plan: 0, seen by ncu: 1: k"),
        (planned(Launch("q", (4, 1, 1), (64, 1, 1), (1, 1, 1), 1)), "launch 0: kernel is q in the plan, k in ncu"),
        (planned(Launch("k", (5, 1, 1), (64, 1, 1), (1, 1, 1), 1)), "grid is (5, 1, 1)"),
        (planned(Launch("k", (4, 1, 1), (32, 1, 1), (1, 1, 1), 1)), "block is (32, 1, 1)"),
        (planned(Launch("k", (4, 1, 1), (64, 1, 1), (1, 1, 1), 4096)), "dynamic shared memory (B) is 4096"),
    ],
)
def test_plan_differs(plan: Plan, note: str) -> None:
    result = fact(case(row(), plan=plan), "plan_matches")
    assert result.value == 0 and note in result.note


def test_a_kernel_has_the_name_that_its_plan_gives_it() -> None:
    compiled = "k<ROWS=4>"  # what Triton compiled it for, which ncu does not see
    launch = replace(LAUNCH, kernel=compiled)
    planned_case = case(row({"gpu__time_duration.sum": "7"}), plan=planned(launch))
    assert fact(planned_case, "ncu_duration", CaseSubject(Case("v", "s"), kernel=compiled)).value == 7
    other = case(row({"gpu__time_duration.sum": "7"}), plan=planned(replace(launch, grid=(5, 1, 1))))
    assert fact(other, "ncu_duration", CaseSubject(Case("v", "s"), kernel="k")).value == 7, (
        "this is not what was planned"
    )


def test_plan_of_a_cluster_against_ncu() -> None:
    cells: dict[str, str | None] = {f"launch__cluster_dim_{a}": n for a, n in zip("xyz", "200", strict=True)}
    in_twos = Launch("k", (4, 1, 1), (64, 1, 1), (2, 1, 1), 1)
    assert fact(case(row(cells), plan=planned(in_twos)), "plan_matches").value == 1
    assert fact(case(row(cells), plan=planned(LAUNCH)), "plan_matches").value == 0


def test_a_linked_library_launches_more_than_the_plan() -> None:
    """Its kernels are not the variant's, so the variant's own are compared."""
    rows, registers = [row(kernel="gemm"), row(), row(kernel="gemm")], {"k": 32}

    def matches(plan: Plan, **built: object) -> Fact:
        results = facts_of(CASE, rows, chip="gh100", built=CaseBuild(plan, registers=registers, **built))  # type: ignore[arg-type]
        return fact(Facts(results), "plan_matches")

    assert matches(planned(LAUNCH), is_linked=True).value == 1
    assert matches(planned(), is_linked=True).value == 0
    assert matches(planned(LAUNCH)).value == 0


def test_no_plan_is_unmeasured() -> None:
    assert fact(case(row()), "plan_matches").value is None
    assert fact(case(row(), plan=Plan("v", "s", (), 0, PlanRefused("S too large"))), "plan_matches").value is None
