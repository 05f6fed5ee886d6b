"""Real reports as records: every value as the reader and ncu's own CSV have it."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.features.reports import assemble
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseSubject, CodeSubject, Fact, Record, Source
from flashcore.readers.ncu.results import Report
from flashcore.records import lookup, soundness, store
from tests.recorded import RECORDED
from tests.support.late import needs
from tests.support.ncu_reports import read_by_itself

NAMES = ("app_full", "app_basic", "app_graph", "triton_full")
pytestmark = [needs("ncu_report"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def recorded(*reports: Report, **options: Any) -> Record:
    return assemble.record_of("20260101T000000Z-0000", reports, **options)


def of_launches(record: Record) -> dict[int, dict[str, Fact]]:
    """Launch → its facts by name."""
    results: dict[int, dict[str, Fact]] = {}
    for fact in record.facts:
        if fact.subject.launch is not None:
            results.setdefault(fact.subject.launch, {})[fact.name] = fact
    return results


# --- every value, against two independent readings -----------------------------------------------


def csv_rows(name: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Units and rows of the raw page that ncu itself printed of the report."""
    text = (RECORDED / "reports" / f"{name}.import_raw.csv").read_bytes().decode()
    header, units, *rows = csv.reader(io.StringIO(text))
    return dict(zip(header, units, strict=True)), [dict(zip(header, row, strict=True)) for row in rows]


#: ncu's automatic units → how many of the catalogue's units each is.
AUTOMATIC = {"ns": 1, "us": 1e3, "ms": 1e6, "hz": 1, "Mhz": 1e6, "Ghz": 1e9, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6,
             "Gbyte": 1e9, "byte/block": 1, "Kbyte/block": 1e3, "%": 1}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_of_the_catalogue_equals_ncus_own_csv(name: str, sample_report: Any) -> None:
    units, rows = csv_rows(name)
    facts = of_launches(recorded(sample_report(name)))
    assert sorted(facts) == [int(row["ID"]) for row in rows]
    compared = 0
    for row in rows:
        reader_facts = facts[int(row["ID"])]
        for spec in FACTS.values():
            metric = spec.ncu_name("gh100")
            if metric is None or spec.opcodes:
                continue
            fact, cell = reader_facts[spec.name], row.get(metric, "").replace(",", "")
            if cell in ("", "nan") or (spec.weight and row.get(spec.weight) == "0"):
                assert fact.value is None or fact.note.startswith("as "), fact
                continue
            scale = AUTOMATIC.get(units[metric], 1)
            printed = 0.5 * 10 ** -len(cell.partition(".")[2])  # half of the last digit
            assert fact.number == pytest.approx(float(cell) * scale, abs=printed * scale * 1.0001, rel=1e-12), fact
            compared += 1
    assert compared > 15 * len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_launch_equals_the_readers_own(name: str, sample_report: Any, sample_reports: Path) -> None:
    facts = of_launches(recorded(sample_report(name)))
    mapped = {s.ncu_name("gh100"): s.name for s in FACTS.values() if s.ncu_name("gh100") and not s.opcodes}
    compared = 0
    for launch, metrics in enumerate(read_by_itself(sample_reports / f"{name}.ncu-rep")):
        for metric, (value, unit) in metrics.items():
            fact = facts[launch].get(mapped.get(metric, metric))
            if value is None or value == "":
                assert fact is None or fact.value is None
                continue
            assert fact is not None, metric
            if isinstance(value, float) and math.isnan(value):
                assert soundness.measured(fact)[0] is None
            elif fact.value is None:  # of the catalogue, and it says why
                assert metric in mapped and fact.note
            else:
                assert fact.value == value, metric
                assert metric in mapped or fact.unit == ("text" if isinstance(value, str) else unit or "1")
                compared += 1
    assert compared > 500 * len(facts)


# --- what a record is made of ---------------------------------------------------------------------


def test_a_function_is_a_variant_and_a_launch_configuration_a_shape(sample_report: Any) -> None:
    record = recorded(sample_report("app_basic"))
    assert {v.name: v.imported for v in record.suite.variants.values()} == {
        "saxpy": "saxpy(int, float, const float *, float *)",
        "ns_strided_float": "void ns::strided<float>(T1 *, int, int)",
        "ns_strided_double": "void ns::strided<double>(T1 *, int, int)",
        "spilly_96": "void spilly<(int)96>(float *, int)",
    }
    assert {s.name: s.params for s in record.suite.shapes.values()} == {
        "g16384_b256": {"grid": "16384x1x1", "block": "256x1x1"},
        "g8192_b256": {"grid": "8192x1x1", "block": "256x1x1"},
        "g64_b128": {"grid": "64x1x1", "block": "128x1x1"},
    }
    assert (record.gpu, record.gpu_arch, record.environment.ncu) == ("NVIDIA H200", "sm_90", "2025.3.1.0")


def test_a_case_has_the_facts_of_its_launch_of_median_duration(sample_report: Any) -> None:
    record = recorded(sample_report("app_basic"))
    whole = CaseSubject(Case("saxpy", "g16384_b256"))
    seen = record.facts.get("profiled_launches", whole)
    assert seen is not None and seen.value == 5
    launches = of_launches(record)
    times = sorted(launches[i]["ncu_duration"].number or 0.0 for i in (0, 1, 2, 6, 7))
    assert record.facts.number("ncu_duration", whole) == times[2]
    chosen = int(seen.note.partition("launch ")[2].partition(",")[0])
    for name in ("elapsed_cycles", "dram_throughput", "achieved_occupancy"):
        result = record.facts.get(name, whole)
        assert result is not None and result.value == launches[chosen][name].value


def test_a_graph_is_one_launch_without_a_size(sample_report: Any) -> None:
    record = recorded(sample_report("app_graph"))
    assert record.suite.shapes["graph"].params == {"launch": "graph"}
    assert record.facts.number("ncu_duration", CaseSubject(Case("graph", "graph"))) == 407_552.0
    barriers = record.facts.get("barriers_per_block", CaseSubject(Case("graph", "graph")))
    assert barriers is not None and barriers.value is None


def test_the_cubin_in_a_report_gives_static_facts(sample_report: Any) -> None:
    record = recorded(sample_report("app_full"))
    kernel = CodeSubject("spilly_96", "sm_90", kernel="void spilly<(int)96>(float *, int)")
    assert record.facts.number("registers", kernel) == 32
    assert record.facts.number("stack_bytes", kernel) == 384
    result = record.facts.get("registers", kernel)
    assert result is not None and result.source is Source.CUBIN
    given = record.facts.get("ncu_registers", CaseSubject(Case("saxpy", "g16384_b256")))
    assert given is not None and (given.value, given.note) == (
        16, "the code needs 10; the driver allocates more",
    )  # fmt: skip
    same = record.facts.get("ncu_registers", CaseSubject(Case("spilly_96", "g64_b128")))
    assert same is not None and (same.value, same.note) == (32, "")


def test_flops_are_counted_where_the_full_set_has_them_by_the_cycle(sample_report: Any) -> None:
    record = recorded(sample_report("app_full"))
    n = 1 << 22
    assert record.facts.number("op_ffma", CaseSubject(Case("saxpy", "g16384_b256"))) == n
    assert record.facts.number("op_dadd", CaseSubject(Case("ns_strided_double", "g8192_b256"))) == n // 2
    assert record.facts.number("op_fadd", CaseSubject(Case("spilly_96", "g64_b128"))) == 64 * 128 * 96
    assert {v.name: v.roof for v in record.suite.variants.values()} == {
        "saxpy": "fp32", "ns_strided_float": "fp32", "ns_strided_double": "fp64", "spilly_96": "fp32",
    }  # fmt: skip


def test_rules_and_their_estimates_are_facts(sample_report: Any) -> None:
    launch = of_launches(recorded(sample_report("app_full")))[5]
    assert str(launch["rule__SOLBottleneck"].value).startswith("Small Grid: This kernel grid is too small")
    speedup = launch["rule__IssueSlotUtilization.speedup"]
    assert (speedup.value, speedup.unit, speedup.note) == (86.14006704099653, "pct", "estimated speed-up, local")


def test_instructions_come_with_their_lines_and_counts(sample_report: Any) -> None:
    record = recorded(sample_report("triton_full"))
    listing = next(x for x in record.listings if x.subject.variant == "softmax_kernel")
    executed = math.fsum(i.values["executed"] for i in listing.instructions)
    assert executed == record.facts.number("instructions", CaseSubject(listing.subject.case))
    assert {i.file for i in listing.instructions} >= {"/tmp/f/tri.py"}
    assert "tl.load" in next(i.source for i in listing.instructions if i.text.startswith("@!P1  LDG"))
    assert not recorded(sample_report("triton_full"), sources=False).listings


def test_launches_of_several_reports_are_numbered_on(sample_report: Any) -> None:
    record = recorded(sample_report("app_graph"), sample_report("app_basic"))
    launches = of_launches(record)
    assert sorted(launches) == list(range(15))
    assert (
        launches[7]["ncu_duration"].value == of_launches(recorded(sample_report("app_basic")))[0]["ncu_duration"].value
    )


def test_reports_of_two_gpus_make_no_record(sample_report: Any) -> None:
    other = sample_report("app_graph")
    changed = [replace(r, cc=(8, 9)) for r in other.results]
    with pytest.raises(UsageError, match="one GPU model"):
        recorded(sample_report("app_basic"), replace(other, results=tuple(changed)))


def test_a_run_is_kept_and_read_back(sample_report: Any, sample_reports: Path, tmp_path: Path) -> None:
    command = ["import", str(sample_reports / "app_full.ncu-rep"), "--profiles", str(tmp_path)]
    assert main([*command, "--name", "mine"]) == Exit.OK
    (folder,) = tmp_path.glob("2*")
    record = store.read(folder)
    assert record.suite.name == "mine"
    assert any(
        name.endswith("app.cu") and text.startswith("#include <cstdio>")
        for listing in record.listings
        for name, text in listing.files.items()
    )
    assert main([*command, "--no-sources"]) == Exit.OK
    (bare,) = {*tmp_path.glob("2*")} - {folder}
    assert sorted(p.name for p in bare.iterdir()) == ["SHA256SUMS", "facts.json.gz", "run.json", "samples.json.gz"]
    assert not lookup.unfinished(tmp_path)


FP8 = "sm__ops_path_tensor_src_fp8"


DRAM = "pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    ("metric", "other", "value", "unit"),
    [
        (f"dram__throughput.avg.{DRAM}", f"dram__cycles_active.avg.{DRAM}", 12.5, "%"),
        ("lts__t_bytes.sum", "lts__t_sectors.sum", 96.0, "byte"),
    ],
)
def test_an_equivalent_has_the_unit_of_the_metric(metric: str, other: str, value: float, unit: str) -> None:
    made = assemble.equivalent(metric, {other: value / (32 if unit == "byte" else 1)}.get)
    assert made is not None and (made.value, made.unit) == (value, unit)


@pytest.mark.parametrize(
    ("metric", "others", "value"),
    [
        ("smsp__inst_executed.sum", {"inst_executed": 7.0}, 7),
        ("smsp__inst_executed.sum", {}, None),
        ("smsp__inst_executed_op_local_ld.sum", {"smsp__sass_inst_executed_op_local_ld.sum": 0.0}, 0),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 0.0, f"{FP8}_sparsity_on.sum": 0.0}, 0),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 4.0, f"{FP8}_sparsity_on.sum": 0.0}, None),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 0.0}, None),
        ("lts__t_bytes.sum", {"lts__t_sectors.sum": 3.0}, 96),
        ("l1tex__t_bytes.sum", {"lts__t_sectors.sum": 3.0}, None),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.3, "sm__cycles_elapsed.avg": 10.0}, 3),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.31, "sm__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.30001, "sm__cycles_elapsed.avg": 1e5}, 30001),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.3, "lts__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.sum", {"sm__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.avg", {"sm__x.avg.per_cycle_elapsed": 0.3, "sm__cycles_elapsed.avg": 10.0}, None),
    ],
)
def test_a_count_is_made_of_its_equivalents(metric: str, others: dict[str, float], value: float | None) -> None:
    made = assemble.equivalent(metric, others.get)
    assert (made and made.value) == value
    assert made is None or all(name.partition(".per")[0] in str(made.detail) for name in others if name[:3] != "sm_")
