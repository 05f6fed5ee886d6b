"""The metric tables: real ones of six chips, and what is lost on each."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from flashcore.chips.metric_tables import lookup
from flashcore.chips.metric_tables.lookup import MetricTable
from flashcore.errors import UsageError
from flashcore.model.catalogue import FACTS, TENSOR_TYPES
from tests import factory

CHIPS = ("ad104", "ga100", "ga102", "gb100", "gb202", "gh100")


def test_there_are_tables_of_these_chips() -> None:
    assert set(CHIPS) | set(lookup.SAME_LIST) == set(lookup.chips())
    for chip in CHIPS:
        assert len(lookup.table(chip).metrics) > 2900


@pytest.mark.parametrize(
    ("chip", "lost"),
    [
        ("gh100", set()),
        ("ad104", {"tensor_gmma_instructions", "tensor_hfma2_instructions", "stall_gmma"}),
        ("ga100", {"tensor_gmma_instructions", "stall_gmma", "tensor_flop_fp8"}),
        ("ga102", {"tensor_gmma_instructions", "tensor_hfma2_instructions", "stall_gmma", "tensor_flop_fp8"}),
        ("ga104", {"tensor_gmma_instructions", "tensor_hfma2_instructions", "stall_gmma", "tensor_flop_fp8"}),
        ("gb202", {"tensor_gmma_instructions", "tensor_hfma2_instructions", "stall_gmma", "stall_imc_miss"}),
    ],
)
def test_what_each_chip_lacks(chip: str, lost: set[str]) -> None:
    types = {f"tensor_flop_{n}" for n in ("fp16_sum16", "fp8_sum16", "fp6", "fp6_sum16", "fp4", "int4", "int1")}
    if chip.startswith(("ad", "ga")):  # no TMA, no clusters
        lost = lost | {"tma_read_bytes", "tma_write_bytes", "cluster_bytes"}
    assert lookup.lacking(lookup.table(chip)).keys() - types == lost


@pytest.mark.parametrize("chip", CHIPS)
def test_every_name_of_the_catalogue_is_in_the_chips_own_list(chip: str) -> None:
    """Real roll-ups of real names; a slip of the mapping shows as a lost metric that the chip was said to have."""
    result = lookup.table(chip)
    names = [name for spec in FACTS.values() if (name := spec.ncu_name(chip)) is not None]
    assert [name for name in names if not result.has(name)] == []


@pytest.mark.parametrize("chip", CHIPS)
def test_every_type_that_the_chips_tensor_cores_multiply_is_counted(chip: str) -> None:
    """The tensor path's metrics in a chip's list, not split by instruction or sparsity."""
    types = re.compile(r"sm__ops_path_tensor_src_(?!.*(_sparsity_|_realtime))\w+")
    listed = {f"{name}.sum" for name in lookup.table(chip).metrics if types.fullmatch(name)}
    recorded = {f"tensor_flop_{n}" for n in TENSOR_TYPES}
    requested = {spec.ncu_name(chip) for spec in FACTS.values() if spec.name in recorded}
    assert len(listed) >= 6 and requested - {None} == listed


@pytest.mark.parametrize(
    ("chip", "fact", "name"),
    [
        ("gh100", "tensor_flop_fp16", "sm__ops_path_tensor_src_fp16.sum"),
        ("ad104", "tensor_flop_fp16", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"),
        ("ga100", "tensor_flop_fp16", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"),
        ("ad104", "tensor_active", "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active"),
        ("ga100", "tensor_active", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
        ("ga102", "tensor_active", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
        ("ga106", "tensor_flop_fp16", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"),
        ("ga102", "dram_read_bytes", "dram__bytes_read.sum"),
        ("gb202", "dram_read_bytes", "dram__bytes_op_read.sum"),
        ("gb100", "dram_read_bytes", "dram__bytes_read.sum"),
    ],
)
def test_the_same_fact_has_another_name_elsewhere(chip: str, fact: str, name: str) -> None:
    table = lookup.table(chip)
    assert FACTS[fact].ncu_name(chip) == name and table.has(name) and fact not in lookup.lacking(table)


@pytest.mark.parametrize(
    ("metric", "there"),
    [
        ("dram__bytes_read.sum", True),
        ("dram__bytes_read.avg.per_second", True),
        ("dram__bytes_read", True),
        ("dram__bytes_read.pct", False),  # no roll-up of a counter
        ("dram__bytes.sum", False),
        ("lts__throughput.avg.pct_of_peak_sustained_elapsed", True),
        ("l2__hit.pct", True),
        ("l2__hit.sum", False),
        ("launch__grid_size", True),
    ],
)
def test_a_name_needs_a_roll_up_that_its_kind_has(metric: str, there: bool) -> None:
    table = MetricTable("x", {"dram__bytes_read": "Counter", "lts__throughput": "Throughput", "l2__hit": "Ratio"})
    assert table.has(metric) is there


def test_a_limit_that_could_never_be_measured_is_refused_before_anything_runs() -> None:
    limit = factory.budget("stall_gmma", maximum=5)
    table = lookup.table("ad104")
    with pytest.raises(UsageError, match=r"ad104.*\n  stall_gmma: ad104 has no such counter"):
        lookup.require_budgets(factory.suite(budgets=[limit]), table, "sm_89", "NVIDIA L4")
    for budget in (
        factory.goal("stall_gmma", maximum=5),
        factory.budget("stall_gmma", maximum=5, archs=("sm_90a",)),
        factory.budget("stall_gmma", maximum=5, device="H200"),
        factory.budget("isolated_p50", maximum=5),
        factory.budget("max_error", maximum=5),
    ):
        lookup.require_budgets(factory.suite(budgets=[budget]), table, "sm_89", "NVIDIA L4")
    of_l4 = factory.budget("stall_gmma", maximum=5, device="L4")
    lookup.require_budgets(factory.suite(budgets=[of_l4]), table, "sm_89", "NVIDIA L40")  # whole words


# --- tables -------------------------------------------------------------------------------------


def test_a_chip_of_the_same_family_says_whose_list_it_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = lookup.table("ga104")
    assert table.chip == "ga104"
    assert table.metrics == lookup.table("ga102").metrics
    assert table.source.endswith("for ga102, which has the same metrics")
    chip_table = MetricTable("ga104", {"sm__x": "Counter"}, "x")
    (tmp_path / "ga104.txt.gz").write_bytes(gzip.compress(b"# flashcore metric table 1: ga104, by x\nsm__x Counter\n"))
    monkeypatch.setattr(lookup, "TABLES", tmp_path)
    assert lookup.table("ga104") == chip_table
    assert lookup.chips() == ["ga104"]
