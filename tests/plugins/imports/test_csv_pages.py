"""Every page that ncu prints as CSV, in both conventions of writing numbers, against the report that it is of."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import RecordError
from flashcore.explain import roofline
from flashcore.model.record import Record, Subject
from flashcore.plugins.imports import assemble
from flashcore.plugins.imports.api import read_report
from flashcore.readers.ncu.results import Report, Result
from tests.recorded import RECORDED

SAXPY = "saxpy(int, float, const float *, float *)"


def text_of(name: str) -> str:
    return (RECORDED / "reports" / f"{name}.csv").read_bytes().decode()


def read(text: str, folder: Path) -> Report:
    path = folder / "page.csv"
    path.write_text(text)
    return read_report(path)


def recorded(report: Report) -> Record:
    return assemble.record_of("20260101T000000Z-0000", [report])


def european(text: str) -> str:
    """The page as a program with a decimal comma would have written it: every number of it, nothing else."""
    rows = list(csv.reader(io.StringIO(text[text.index('"ID"') :])))
    swap = str.maketrans(",.", ".,")
    skip = {i for i, c in enumerate(rows[0]) if c in ("ID", "CC", "Block Size", "Grid Size", "Kernel Name")}
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows[1:]:
        numeric = (re.fullmatch(r"[\d.,]+", cell) and not re.fullmatch(r"\d+\.\d{6}", cell) for cell in row)
        writer.writerow(c.translate(swap) if n and i not in skip else c
                        for i, (c, n) in enumerate(zip(row, numeric, strict=True)))  # fmt: skip
    return out.getvalue()


def value(result: Result, metric: str) -> float | None:
    return result.read(metric).value


# --- each page ------------------------------------------------------------------------------------


def test_the_raw_page_says_what_the_report_says(sample_report: Any, tmp_path: Path) -> None:
    page = recorded(read(text_of("app_full.import_raw"), tmp_path))
    report = recorded(sample_report("app_full"))
    assert list(page.suite.variants) == list(report.suite.variants)
    assert list(page.suite.shapes) == list(report.suite.shapes)
    compared = 0
    for fact in page.facts:
        if fact.subject.launch is None and fact.value is not None and fact.subject.kernel is None:
            other = report.facts.number(fact.name, fact.subject)
            assert fact.number == pytest.approx(other, rel=1e-3, abs=0.006), fact
            compared += 1
    assert compared > 250


def test_a_page_does_not_say_what_became_of_the_caches(tmp_path: Path) -> None:
    record = recorded(read(text_of("app_full.import_raw"), tmp_path))
    saxpy = Subject("saxpy", shape="g16384_b256")
    assert roofline.regime(record, saxpy) == "ncu (cache control unknown)"


def test_the_raw_page_in_automatic_units(tmp_path: Path) -> None:
    report = read(text_of("app_raw_units"), tmp_path)
    facts = recorded(report).facts
    assert facts.number("ncu_duration", Subject("spilly_96", shape="g64_b128")) == 6720.0  # printed as 6.720000 us
    assert facts.number("ncu_dynamic_smem", Subject("saxpy", shape="g16384_b256")) == 0
    assert report.results[0].text("device__attribute_display_name") == "NVIDIA H200"


def test_a_size_in_automatic_units_is_its_bytes(tmp_path: Path) -> None:
    """Also where the catalogue has no such metric, and in the name of the shape."""
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    header += '"Device","CC","gpu__time_duration.sum","launch__shared_mem_per_block_dynamic","x__traffic.sum"\n'
    row = ',"1","a","h","k(int)","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0"'
    text = f'{header}"","","","","","","","","","","","msecond","Kbyte/block","Mbyte"\n'
    text += f'"0"{row},"1.25","213.220","1.1"\n"1"{row},"1.20","0.024","2"\n'
    record = recorded(read(text, tmp_path))
    assert {s: record.suite.shapes[s].params["dynamic_smem"] for s in record.suite.shapes} == {
        "g4_b32_s213220": 213_220, "g4_b32_s24": 24,
    }  # fmt: skip
    facts = record.facts
    assert facts.number("ncu_dynamic_smem", Subject("k", shape="g4_b32_s213220")) == 213_220
    assert facts.number("ncu_duration", Subject("k", shape="g4_b32_s24")) == 1_200_000
    traffic = facts.get("x__traffic.sum", Subject("k", shape="g4_b32_s213220", kernel="k(int)", launch=0))
    assert traffic is not None and (traffic.value, traffic.unit) == (1_100_000, "byte")


def test_the_details_page_with_labels_and_rules(tmp_path: Path) -> None:
    report = read(text_of("app_details"), tmp_path)
    facts = recorded(report).facts
    spilly = Subject("spilly_96", shape="g64_b128")
    expected = {"ncu_duration": 6816.0, "instructions": 327168, "achieved_occupancy": 6.25, "ncu_registers": 32}
    assert {name: facts.number(name, spilly) for name in expected} == expected
    sm_clock = facts.get("sm_clock", spilly)
    assert sm_clock is not None and sm_clock.value is None, "SM Frequency is another metric in every other version"
    finding = next(f for f in report.results[5].findings if f.rule == "AchievedOccupancy")
    assert finding.speedup is not None and finding.message.startswith("The difference between calculated")


def test_the_long_form_that_metrics_prints_by_itself(tmp_path: Path) -> None:
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    header += '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    row = '"0","1","a","h","k(int)","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","Command line profiler metrics",'
    text = f'==PROF== Connected\nits own output\n{header}{row}"gpu__time_duration.sum","usecond","1.50"\n'
    text += f'{row}"smsp__inst_executed.sum","inst","1,024"\n'
    (result,) = read(text, tmp_path).results
    assert (value(result, "smsp__inst_executed.sum"), value(result, "gpu__time_duration.sum")) == (1024, 1500)
    assert recorded(read(text, tmp_path)).facts.number("ncu_duration", Subject("k", shape="g4_b32")) == 1500


def test_a_summary_has_averages_and_says_so(tmp_path: Path) -> None:
    report = read(text_of("app_summary"), tmp_path)
    assert [r.averaged for r in report.results] == [5, 1, 1, 1]
    facts = recorded(report).facts
    whole = Subject("saxpy", shape="g16384_b256")
    seen = facts.get("profiled_launches", whole)
    assert seen is not None and (seen.value, seen.note) == (5, "the report is a summary: the other facts are averages")
    assert facts.number("ncu_duration", whole) == 14329.6
    assert not [f for f in facts if f.subject.launch is not None]


def test_the_source_page_lists_instructions_each_once(tmp_path: Path) -> None:
    report = read(text_of("app_source"), tmp_path)
    assert [r.kernel for r in report.results].count(SAXPY) == 5
    record = recorded(report)
    whole = Subject("spilly_96", shape="unknown")
    assert record.facts.number("instructions", whole) == 327168
    listing = next(x for x in record.listings if x.subject.variant == "saxpy")
    first = listing.instructions[0]
    assert (first.offset, first.text, first.line, first.values["executed"]) == (0, "LDC R1, c[0x0][0x28]", 4, 131072)
    assert [i.offset for i in listing.instructions] == sorted({i.offset for i in listing.instructions})
    assert record.gpu_arch is None


def test_nvtx_ranges_are_kept(tmp_path: Path) -> None:
    text = (RECORDED / "ncu_raw_domain.csv").read_bytes().decode()
    report = read(text, tmp_path)
    assert report.results[0].ranges == ("flashcore:v0/mission",)
    launch = Subject("gemm_v0", shape="g8x8_b128", kernel="gemm_v0", launch=0)
    assert recorded(report).facts.get("nvtx__ranges", launch) is not None


# --- both conventions -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["app_full.import_raw", "app_basic.import_raw", "app_details"])
def test_a_european_file_holds_the_same_numbers(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    point, comma = read(text, tmp_path), read(european(text), tmp_path)
    assert european(text) != text
    for one, other in zip(point.results, comma.results, strict=True):
        numbers = [m for m in one.metrics if not isinstance(one.metrics[m].value, str)]
        assert len(numbers) > 20
        assert [str(one.metrics[m].value) for m in numbers] == [str(other.metrics[m].value) for m in numbers]


# --- what is refused ------------------------------------------------------------------------------

RAW = """"ID","Kernel Name","Block Size","Grid Size","CC","a__b.sum"
{units}"0","k","(1, 1, 1)","(1, 1, 1)","9.0","{cell}"
"""
UNITS = '"","","","","","inst"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a header"),
        ("some,other,table\n1,2,3\n", "a header"),
        (RAW.format(units="", cell="1"), "a row of units"),
        (RAW.format(units=UNITS, cell="1,024"), "is ambiguous by a factor of 1,000"),
        (RAW.format(units=UNITS, cell="0.5 (x: 0,5)"), "a decimal point in 0.5 and a decimal comma in 0,5"),
        (RAW.format(units=UNITS, cell="1").rstrip("\n"), "cut short"),
        (RAW.format(units=UNITS, cell="1").rstrip('"\n') + "\n", "CSV"),
        (RAW.format(units=UNITS, cell="1") + '"1","k"\n', "2 fields, but the header has 6"),
        (RAW.format(units=UNITS, cell="1").replace('"9.0"', '"nine"'), "compute capability"),
        (RAW.format(units=UNITS, cell="1") * 2, "expected one header, found a second"),
        ('"Function Name","k"\n"#","Source"\n"1","MOV"\n', "lines with the instructions below them"),
    ],
)
def test_what_cannot_be_read_without_guessing_is_refused_with_the_command(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError, match=message) as error:
        read(text, tmp_path)
    assert "LC_ALL=C ncu --import" in str(error.value)


def test_the_command_in_a_refusal_overwrites_no_source(tmp_path: Path) -> None:
    (tmp_path / "fast.cu").write_text("__global__ void fast() {}\n")
    with pytest.raises(RecordError) as error:
        read_report(tmp_path / "fast.cu")
    assert str(error.value).endswith("> fast.csv")


def test_a_page_without_its_beginning_is_refused(tmp_path: Path) -> None:
    lines = text_of("app_source").splitlines(keepends=True)
    with pytest.raises(RecordError, match="no rows above the header"):
        read("".join(lines[10:]), tmp_path)


def test_a_result_that_is_not_there_is_said(tmp_path: Path) -> None:
    lines = text_of("app_raw_units").splitlines(keepends=True)
    record = recorded(read("".join(lines[:-3] + lines[-2:]), tmp_path))
    assert "it has no result 5" in record.stages[0].reason


def test_a_details_page_that_ends_within_a_result_is_refused(tmp_path: Path) -> None:
    lines = text_of("app_details").splitlines(keepends=True)
    with pytest.raises(RecordError, match="cut short"):
        read("".join(lines[:-30]), tmp_path)
