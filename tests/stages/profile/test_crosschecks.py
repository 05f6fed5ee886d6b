"""Counters that cannot be are caught; those of every recorded run, profile and report can be."""

from __future__ import annotations

import functools
import lzma
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flashcore.model.catalogue import FACTS
from flashcore.readers.ncu.raw_page import Cells, parse
from flashcore.readers.ncu.results import Result
from flashcore.stages.profile import crosschecks, ncu_facts
from flashcore.stages.profile.crosschecks import CountedLaunch
from tests.conftest import ROOT
from tests.recorded import RECORDED

RUNS = sorted((ROOT / "profiles").glob("*.run.zip"))


@functools.cache
def recorded() -> tuple[Result, ...]:
    """Every kernel launch of the recorded runs, as ncu's raw pages have it."""
    archives = map(zipfile.ZipFile, RUNS)
    pages = (a.read(name) for a in archives for name in sorted(a.namelist()) if re.search(r"/profile/.*csv\.xz$", name))
    return tuple(row for page in pages for row in parse(lzma.decompress(page).decode()).rows)


def one(case: str) -> Result:
    return next(row for row in recorded() if row.range_in("flashcore") == case)


def cells_of(row: Result) -> dict[str, str]:
    assert isinstance(row.metrics, Cells)
    return dict(row.metrics.cells)


def changed(row: Result, cells: dict[str, str]) -> Result:
    """The launch as if ncu had printed other cells."""
    assert isinstance(row.metrics, Cells)
    return replace(row, metrics=replace(row.metrics, cells=cells))


def impossible(row: Result, registers: int | None = None) -> dict[str, str]:
    """Fact → why it cannot be."""
    values = ncu_facts.launch_values(row, "gh100", {}, registers)
    return {n: v.note for n, v in values.items() if v.note.startswith("impossible: ")}


# --- no false alarm -------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_recorded_launch_is_called_impossible() -> None:
    assert len(recorded()) > 200
    assert [(row.ranges, result) for row in recorded() if (result := impossible(row))] == []


@pytest.mark.parametrize("name", ["app_full", "app_basic", "app_graph", "triton_full"])
def test_no_result_of_the_sample_reports_is_called_impossible(
    name: str, sample_report: Any, sample_record: Any
) -> None:
    """With the registers of the cubins in them too."""
    assert [(r.kernel, result) for r in sample_report(name).results if (result := impossible(r))] == []
    record = sample_record(name)
    assert not [f for f in record.facts if f.note.startswith("impossible: ")]


def test_a_hit_rate_of_212_per_cent_is_caught() -> None:
    """Recorded from ncu 2025.3.1: a kernel of 6 µs whose hits and sectors were counted in two passes."""
    text = (RECORDED / "ncu_raw_multi_kernel.csv").read_bytes().decode()
    results = [f for row in parse(text).rows if (f := impossible(row))]
    assert results == [{"l2_hit": "impossible: 211.8 % of a peak"}]


# --- planted faults -------------------------------------------------------------------------------

Plant = Callable[[str], str]


def nan(text: str) -> str:
    return "nan"


def zero(text: str) -> str:
    return "0"


def half(text: str) -> str:
    return f"{float(text.partition(' ')[0].replace(',', '')) / 2:.2f}"


#: (case, fact, what is done to it, all of its roll-ups or its own metric alone)
FAULTS: list[tuple[str, str, Plant, bool]] = [
    ("fused_wmma/mission", "ncu_duration", nan, True),
    ("fused_wmma/mission", "instructions", nan, True),
    ("fused_wmma/mission", "dram_read_bytes", nan, True),
    ("fused_wmma/mission", "l2_hit", nan, True),
    ("decode_head/s16k", "tensor_flop_fp16", nan, True),
    ("fused_wmma/mission", "elapsed_cycles", zero, True),
    ("fused_wmma/mission", "ncu_duration", zero, True),
    ("fused_wmma/mission", "instructions", zero, True),
    ("fused_wmma/mission", "achieved_occupancy", zero, True),
    ("fused_wmma/mission", "ncu_registers", zero, True),
    ("fused_wmma/mission", "tensor_instructions", zero, True),
    ("decode_head/s16k", "tensor_flop_fp16", zero, True),
    ("fused_wmma/mission", "tensor_active", zero, True),
    ("fused_wmma/mission", "l2_bytes", zero, True),
    ("fused_wmma/mission", "shared_wavefronts", zero, True),
    ("scalar_row/mission", "op_ffma", zero, True),
    ("fused_wmma/mission", "elapsed_cycles", half, True),
    ("fused_wmma/mission", "sm_clock", half, True),
    ("fused_wmma/mission", "instructions", half, True),
    ("fused_wmma/mission", "instructions_issued", half, True),
    ("fused_wmma/mission", "tensor_instructions", half, True),
    ("decode_head/s16k", "tensor_flop_fp16", half, True),
    ("fused_wmma/mission", "l1_bytes", half, True),
    ("fused_wmma/mission", "l2_bytes", half, True),
    ("fused_wmma/mission", "ncu_registers", half, True),
    ("fused_wmma/mission", "ncu_grid_size", half, True),
    ("fused_wmma/mission", "ncu_theoretical_occupancy", half, True),
    ("unfused_wmma/s2048", "dram_read_bytes", half, False),
    ("scalar_row/mission", "op_ffma", half, False),
    ("fused_wmma/mission", "bank_conflicts", half, False),
]


@pytest.mark.parametrize(("case", "name", "plant", "all_of_it"), FAULTS)
def test_a_planted_fault_is_caught(case: str, name: str, plant: Plant, all_of_it: bool) -> None:
    """Each in a launch that was really recorded: the fact is unmeasured, and its note says why."""
    row = one(case)
    metric = str(FACTS[name].ncu_name("gh100"))
    base = metric.rpartition(".")[0]
    hit = {metric, *(m for m in cells_of(row) if all_of_it and base and m.rpartition(".")[0] == base)}
    cells = {m: plant(text) if m in hit else text for m, text in cells_of(row).items()}
    before = ncu_facts.launch_values(row, "gh100")[name]
    after = ncu_facts.launch_values(changed(row, cells), "gh100")[name]
    assert before.value, "the fault is in something that was there"
    assert after.value is None and ("impossible: " in after.note or "ncu gave 'nan'" in after.note)


def test_what_follows_from_a_fault_is_unmeasured_too() -> None:
    row = one("decode_head/s16k")
    cells = {m: "0" if m.startswith("sm__ops_path_tensor_src_fp16") else text for m, text in cells_of(row).items()}
    values = ncu_facts.launch_values(changed(row, cells), "gh100")
    assert values["tensor_flop"].value is None and "tensor_flop_fp16: impossible" in values["tensor_flop"].note


@pytest.mark.parametrize(("cubin", "caught"), [(None, False), (128, False), (127, False), (64, True), (160, True)])
def test_registers_are_those_of_the_cubin(cubin: int | None, caught: bool) -> None:
    """The driver may round up to eights, and gives at least 16; fewer than the code needs it cannot give."""
    row = next(r for r in recorded() if r.read("launch__registers_per_thread").value == 128)
    assert ("ncu_registers" in impossible(row, cubin)) is caught


def test_bytes_are_held_to_sectors_of_dram_where_a_report_has_them() -> None:
    row = one("fused_wmma/mission")
    values, metrics = {"dram_read_bytes": 3200.0}, {"dram_read_bytes": "dram__bytes_read.sum"}
    assert "sectors" not in str(crosschecks.impossible(CountedLaunch(row, values, metrics, "gh100")))
    row = changed(row, {**cells_of(row), "dram__sectors_read.sum": "50"})
    reason = crosschecks.impossible(CountedLaunch(row, values, metrics, "gh100"))["dram_read_bytes"]
    assert reason == "impossible: 3,200 bytes are not 50 sectors of 32"
    row = changed(row, {**cells_of(row), "dram__sectors_read.sum": "99"})
    assert "sectors" not in str(crosschecks.impossible(CountedLaunch(row, values, metrics, "gh100"))), (
        "a sector more or less"
    )


def test_a_graph_has_no_size_to_be_held_to() -> None:
    graph = Result(0, "graph", "graph", (0, 0, 0), (0, 0, 0), (9, 0), {})
    assert not impossible(graph)


def test_products_of_a_type_that_the_report_lacks_accuse_no_other() -> None:
    """A report may hold some of the counters alone: the others then do not add up to the products executed."""
    row = one("fused_wmma/mission")
    cells = {m: text for m, text in cells_of(row).items() if not m.startswith("sm__ops_path_tensor_src_fp16")}
    assert not impossible(changed(row, cells))


def test_other_chips_are_held_to_what_is_known_of_them() -> None:
    """By the names of a gh100's opcodes nothing of a Blackwell is accused, nor by anything on an unknown chip."""
    for chip in ("gb100", "gb202", "ga100", "ad102", "unknown"):
        for row in recorded()[:20]:
            values = ncu_facts.launch_values(row, chip)
            assert not [n for n, v in values.items() if v.note.startswith("impossible: ")], chip


@pytest.mark.parametrize(("flop", "enough"), [(0.0, False), (51_199.0, False), (51_200.0, True)])
def test_a_hundred_matrix_instructions_are_more_than_a_hundred_operations(flop: float, enough: bool) -> None:
    reason = crosschecks.too_few_flops(flop, 100.0)
    assert reason == (
        "" if enough else f"100 tensor-core instructions, but only {flop:,.0f} FLOPs of the counted types"
    )
